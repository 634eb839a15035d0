update cairnq_tasks set status = 'queued', run_at_ms = :now, updated_at_ms = :now,
  attempt = case when :reset then 0 else attempt end,
  error = null, worker_id = null, lease_until_ms = null, cancel_requested_at_ms = null,
  completed_at_ms = null, progress = null, message = null
where id = :id and status in ('failed', 'canceled')
returning {{columns}}
