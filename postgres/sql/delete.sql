-- One ended task.
delete from cairnq_tasks where id = :id::text and status in ('succeeded', 'failed', 'canceled')
returning id
