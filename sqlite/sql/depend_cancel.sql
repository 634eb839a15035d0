-- A new task whose parent has failed already.
update cairnq_tasks set status = 'canceled', error = :error, completed_at_ms = :now, updated_at_ms = :now
where id = :id and status = 'queued'
returning id, queue, status
