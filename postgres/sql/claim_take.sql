-- Queued tasks become the worker's.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set status = 'running', worker_id = :worker_id::text, lease_until_ms = clock.now + :lease_ms::bigint,
  attempt = attempt + 1, updated_at_ms = clock.now
from clock
where id = any(:ids::text[]) and status = 'queued'
returning {{columns}}
