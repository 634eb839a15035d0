-- A parent to be. The write lock of the whole file keeps it as it is.
select id, name, status from cairnq_tasks where id = :id
