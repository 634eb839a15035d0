-- The next name of a queue that has queued tasks.
select name from cairnq_tasks
where status = 'queued' and queue = :queue and name > :name
order by name limit 1
