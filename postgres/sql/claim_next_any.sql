-- As claim_next, for every name.
select priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue::text and priority < :below::bigint
order by priority desc, run_at_ms limit 1
