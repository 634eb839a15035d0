select id, status from cairnq_tasks
where id = (select task_id from cairnq_task_keys where key = :key::text)
