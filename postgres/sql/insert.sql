-- A new task, by the server's clock.
with clock as materialized (select {{now}} as now)
insert into cairnq_tasks (id, name, queue, status, payload, metadata, max_attempts, priority, run_at_ms,
  parent_id, root_id, correlation_id, created_at_ms, updated_at_ms)
select :id::text, :name::text, :queue::text, 'queued', :payload::jsonb, :metadata::jsonb, :max_attempts::integer, :priority::integer,
  clock.now + :delay_ms::bigint, :parent_id::text, :root_id::text, :correlation_id::text, clock.now, clock.now
from clock
returning run_at_ms, created_at_ms, updated_at_ms
