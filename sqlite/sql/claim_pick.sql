-- Due tasks of one name and priority, from the index alone.
select rowid, id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue and name = :name and priority = :priority and run_at_ms <= :now
order by run_at_ms, id limit :limit
