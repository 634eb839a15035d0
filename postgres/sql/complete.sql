-- Succeeded, or canceled without the result when a cancel is pending.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set
  status = case when cancel_requested_at_ms is null then 'succeeded' else 'canceled' end,
  result = case when cancel_requested_at_ms is null then :result::jsonb else result end,
  progress = case when cancel_requested_at_ms is null then 1.0 else progress end,
  lease_until_ms = null, updated_at_ms = clock.now, completed_at_ms = clock.now
from clock
where id = :id::text
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, queue, status
