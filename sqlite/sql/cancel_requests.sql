-- Which of the tasks somebody has asked to stop.
select id from cairnq_tasks
where id in (select value from json_each(:ids)) and status = 'running' and cancel_requested_at_ms is not null
