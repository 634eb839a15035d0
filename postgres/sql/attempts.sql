-- The attempts of a task that failed, oldest first.
select attempt, worker_id, ended_at_ms as completed_at_ms, status, error from holdfast_attempts
where task_id = :id::text
order by seq
