-- Succeeded, also when a cancel is pending.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set status = 'succeeded', result = :result::jsonb, progress = 1.0, lease_until_ms = null,
  updated_at_ms = clock.now, completed_at_ms = clock.now
from clock
where id = :id::text
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, queue, status
