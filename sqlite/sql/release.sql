-- Put back without spending the attempt: with no delay in its old place, else after the delay.
update cairnq_tasks set
  status = case when cancel_requested_at_ms is null then 'queued' else 'canceled' end,
  attempt = case when cancel_requested_at_ms is null then max(attempt - 1, 0) else attempt end,
  run_at_ms = case when cancel_requested_at_ms is null and :delay_ms > 0 then :now + :delay_ms else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null then null else worker_id end,
  progress = case when cancel_requested_at_ms is null then null else progress end,
  message = case when cancel_requested_at_ms is null then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null then null else :now end,
  lease_until_ms = null, updated_at_ms = :now
where id = :id
  and rowid = :rowid --? rowid
  and status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, queue, status
