-- Somebody decides that a task waits no longer.
update cairnq_tasks set updated_at_ms = :now,
  run_at_ms = max((select run_at_ms from holdfast_waits where task_id = :id), :now)
where id = :id and status = 'queued'
  and exists (select 1 from holdfast_waits where task_id = :id and released_at_ms is null)
returning {{columns}}
