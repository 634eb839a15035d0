-- As claim_pick, for every name.
select id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue::text and priority = :priority::integer and run_at_ms <= :now::bigint
order by run_at_ms, id limit :limit::bigint
for update skip locked
