-- New tasks, many at once: each list holds one column.
with clock as materialized (select {{now}} as now)
insert into cairnq_tasks (id, name, queue, status, payload, metadata, max_attempts, priority, run_at_ms,
  parent_id, root_id, correlation_id, created_at_ms, updated_at_ms)
select n.id, n.name, n.queue, 'queued', n.payload::jsonb, n.metadata::jsonb, n.max_attempts, n.priority,
  clock.now + n.delay_ms, n.parent_id, n.root_id, n.correlation_id, clock.now, clock.now
from clock, unnest(:id::text[], :name::text[], :queue::text[], :payload::text[], :metadata::text[], :max_attempts::integer[],
    :priority::integer[], :delay_ms::bigint[], :parent_id::text[], :root_id::text[], :correlation_id::text[])
  as n (id, name, queue, payload, metadata, max_attempts, priority, delay_ms, parent_id, root_id, correlation_id)
returning id, run_at_ms, created_at_ms, updated_at_ms
