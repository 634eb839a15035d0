select {{columns}} from cairnq_tasks where id = :id::text
