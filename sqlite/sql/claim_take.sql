-- A queued task becomes the worker's.
update cairnq_tasks set status = 'running', worker_id = :worker_id, lease_until_ms = :now + :lease_ms,
  attempt = attempt + 1, updated_at_ms = :now
where rowid = :rowid and status = 'queued'
returning rowid, {{columns}}
