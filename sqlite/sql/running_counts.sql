-- What runs, by queue and name. The bounds of the lease only make the planner prefer its index.
select queue, name, count(*) as count from cairnq_tasks
where status = 'running' and lease_until_ms between 1 and 9e15
group by queue, name
