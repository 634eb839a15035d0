-- Put back without spending the attempt: with no delay in its old place, else after the delay.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set
  status = case when cancel_requested_at_ms is null then 'queued' else 'canceled' end,
  attempt = case when cancel_requested_at_ms is null then greatest(attempt - 1, 0) else attempt end,
  run_at_ms = case when cancel_requested_at_ms is null and :delay_ms::bigint > 0 then clock.now + :delay_ms::bigint else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null then null else worker_id end,
  progress = case when cancel_requested_at_ms is null then null else progress end,
  message = case when cancel_requested_at_ms is null then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null then null else clock.now end,
  lease_until_ms = null, updated_at_ms = clock.now
from clock
where id = :id::text
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > clock.now
returning id, queue, status
