-- When the first lease ends.
select min(lease_until_ms) as lease_until_ms from cairnq_tasks
where status = 'running' and lease_until_ms is not null
