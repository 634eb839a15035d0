select name, spec, zone, task, queue, payload, options, missed, bound, grace_ms, anchor_ms, next_at_ms, last_at_ms, last_task, paused_at_ms, digest,
  created_at_ms, updated_at_ms, {{now}} as now
from holdfast_schedules order by name
