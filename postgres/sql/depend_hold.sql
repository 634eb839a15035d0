-- Nobody claims what is due in the year 9999.
update cairnq_tasks set run_at_ms = 253370764800000 where id = :id::text and status = 'queued'
