-- Succeeded, or canceled without the result when a cancel is pending.
update cairnq_tasks set
  status = case when cancel_requested_at_ms is null then 'succeeded' else 'canceled' end,
  result = case when cancel_requested_at_ms is null then :result else result end,
  progress = case when cancel_requested_at_ms is null then 1.0 else progress end,
  lease_until_ms = null, updated_at_ms = :now, completed_at_ms = :now
where id = :id
  and rowid = :rowid --? rowid
  and status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, queue, status
