-- As claim_next, for every name.
select priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue and priority < :below
order by priority desc, run_at_ms limit 1
