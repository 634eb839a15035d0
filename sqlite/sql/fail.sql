-- A failed attempt. Cancel wins, then another attempt if one is left and wanted, then failure.
update cairnq_tasks set
  error = :error,
  status = case when cancel_requested_at_ms is not null then 'canceled' when :retryable and attempt < max_attempts then 'queued' else 'failed' end,
  run_at_ms = case when cancel_requested_at_ms is null and :retryable and attempt < max_attempts then :now + :delay_ms else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null and :retryable and attempt < max_attempts then null else worker_id end,
  progress = case when cancel_requested_at_ms is null and :retryable and attempt < max_attempts then null else progress end,
  message = case when cancel_requested_at_ms is null and :retryable and attempt < max_attempts then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null and :retryable and attempt < max_attempts then null else :now end,
  lease_until_ms = null, updated_at_ms = :now
where id = :id
  and rowid = :rowid --? rowid
  and status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, queue, status
