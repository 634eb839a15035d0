-- Nobody claims what is due in the year 9999.
update cairnq_tasks set run_at_ms = {{waiting}} where id = :id and status = 'queued'
