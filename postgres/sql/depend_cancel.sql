-- A new task whose parent has failed already.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set status = 'canceled', error = :error::jsonb, completed_at_ms = clock.now, updated_at_ms = clock.now
from clock
where id = :id::text and status = 'queued'
returning id, queue, status
