-- What runs, by queue and name.
select queue, name, count(*) as count from cairnq_tasks
where status = 'running' and lease_until_ms is not null
group by queue, name
