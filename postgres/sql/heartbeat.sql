-- Extends the leases that the worker still holds, of all the tasks named.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set lease_until_ms = clock.now + :lease_ms::bigint, updated_at_ms = clock.now
from clock
where id = any(:ids::text[])
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, lease_until_ms, cancel_requested_at_ms
