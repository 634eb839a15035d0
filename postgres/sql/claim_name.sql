-- The next name of a queue that has queued tasks.
select name from cairnq_tasks
where status = 'queued' and queue = :queue::text and name > :name::text
order by name limit 1
