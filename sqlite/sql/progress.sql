-- How far a task is; null leaves the old value.
update cairnq_tasks set progress = coalesce(:progress, progress), message = coalesce(:message, message), updated_at_ms = :now
where id = :id
  and rowid = :rowid --? rowid
  and status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, queue, status
