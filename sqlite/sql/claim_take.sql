-- Queued tasks become the worker's. No row is asked back: RETURNING costs half as much again.
update cairnq_tasks set status = 'running', worker_id = :worker_id, lease_until_ms = :now + :lease_ms,
  attempt = attempt + 1, updated_at_ms = :now
where rowid in (select value from json_each(:hints)) and +status = 'queued'
