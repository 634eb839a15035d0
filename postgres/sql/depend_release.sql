-- Somebody decides that a task waits no longer.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set status = 'queued', updated_at_ms = clock.now, run_at_ms = greatest(w.run_at_ms, clock.now)
from clock, holdfast_waits w
where t.id = :id::text and t.status = 'queued' and w.task_id = t.id and w.released_at_ms is null
returning {{t.columns}}
