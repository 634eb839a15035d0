-- How far a task is; null leaves the old value.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set progress = coalesce(:progress::double precision, progress), message = coalesce(:message::text, message),
  updated_at_ms = clock.now
from clock
where id = :id::text
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, queue, status
