-- Succeeded, also when a cancel is pending.
update cairnq_tasks set status = 'succeeded', result = :result, progress = 1.0, lease_until_ms = null,
  updated_at_ms = :now, completed_at_ms = :now
where id = :id
  and rowid = :rowid --? rowid
  and status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, queue, status
