-- Whether anything of a queue is due or running. From priority to priority, as a claim does it.
with recursive clock as materialized (select {{now}} as now),
tops (p) as (
  select (select max(priority) from cairnq_tasks where status = 'queued' and queue = :queue::text)
  union all
  select (select max(priority) from cairnq_tasks where status = 'queued' and queue = :queue::text and priority < p)
  from tops where p is not null)
select (exists (select 1 from cairnq_tasks where status = 'running' and lease_until_ms is not null and queue = :queue::text)
  or exists (select 1 from tops where p is not null
    and (select min(run_at_ms) from cairnq_tasks where status = 'queued' and queue = :queue::text and priority = p) <= (select now from clock)))::integer as count
