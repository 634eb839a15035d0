-- A parent to be. It may go on as it likes, but not be deleted.
select id, name, status from cairnq_tasks where id = :id::text for key share
