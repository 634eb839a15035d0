-- The usual case of complete: the row is where it was and no cancel is pending.
update cairnq_tasks set status = 'succeeded', result = :result, progress = 1.0, lease_until_ms = null,
  updated_at_ms = :now, completed_at_ms = :now
where rowid = :rowid and id = :id and status = 'running' and worker_id = :worker_id
  and lease_until_ms > :now and cancel_requested_at_ms is null
