-- Due tasks of one name and priority, that nobody else is taking.
select id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue::text and name = :name::text and priority = :priority::integer and run_at_ms <= :now::bigint
order by run_at_ms, id limit :limit::bigint
for update skip locked
