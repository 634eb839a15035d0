-- What waiting needs, without the payload.
select id, status from cairnq_tasks where id = :id::text
