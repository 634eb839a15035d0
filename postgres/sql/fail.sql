-- A failed attempt. Cancel wins, then another attempt if one is left and wanted, then failure.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set
  error = :error::jsonb,
  status = case when cancel_requested_at_ms is not null then 'canceled' when :retryable::boolean and attempt < max_attempts then 'queued' else 'failed' end,
  run_at_ms = case when cancel_requested_at_ms is null and :retryable::boolean and attempt < max_attempts then clock.now + :delay_ms::bigint else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null and :retryable::boolean and attempt < max_attempts then null else worker_id end,
  progress = case when cancel_requested_at_ms is null and :retryable::boolean and attempt < max_attempts then null else progress end,
  message = case when cancel_requested_at_ms is null and :retryable::boolean and attempt < max_attempts then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null and :retryable::boolean and attempt < max_attempts then null else clock.now end,
  lease_until_ms = null, updated_at_ms = clock.now
from clock
where id = :id::text
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, queue, status
