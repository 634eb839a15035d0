-- As claim_pick, for every name.
select rowid, id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue and priority = :priority and run_at_ms <= :now
order by run_at_ms, id limit :limit
