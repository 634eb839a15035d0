-- All running tasks of one worker, by the rule of recover.sql, before their leases have ended.
update cairnq_tasks set
  status = case when cancel_requested_at_ms is not null then 'canceled' when attempt < max_attempts then 'queued' else 'failed' end,
  error = case when cancel_requested_at_ms is null and attempt >= max_attempts then :error else error end,
  run_at_ms = case when cancel_requested_at_ms is null and attempt < max_attempts then :now else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null and attempt < max_attempts then null else worker_id end,
  progress = case when cancel_requested_at_ms is null and attempt < max_attempts then null else progress end,
  message = case when cancel_requested_at_ms is null and attempt < max_attempts then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null and attempt < max_attempts then null else :now end,
  lease_until_ms = null,
  updated_at_ms = :now
where status = 'running' and lease_until_ms > 0 and worker_id = :worker_id
returning id, queue, status
