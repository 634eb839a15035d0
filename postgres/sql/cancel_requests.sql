-- Which of the tasks somebody has asked to stop.
select id from cairnq_tasks
where id = any(:ids::text[]) and status = 'running' and cancel_requested_at_ms is not null
