-- The next lower priority that has queued tasks of this name, and when its first one is due. Going
-- from priority to priority skips any number of tasks that are not due.
select priority, run_at_ms from cairnq_tasks
where status = 'queued' and queue = :queue::text and name = :name::text and priority < :below::bigint
order by priority desc, run_at_ms limit 1
