-- A task that still waits for others goes on waiting; see depend_retried, which does the same for
-- libraries that know nothing of it.
update cairnq_tasks set status = 'queued', updated_at_ms = :now,
  run_at_ms = case when exists (select 1 from holdfast_waits where task_id = :id and released_at_ms is null and pending > 0)
    then {{waiting}} else :now end,
  attempt = case when :reset then 0 else attempt end,
  error = null, worker_id = null, lease_until_ms = null, cancel_requested_at_ms = null,
  completed_at_ms = null, progress = null, message = null
where id = :id and status in ('failed', 'canceled')
returning {{columns}}
