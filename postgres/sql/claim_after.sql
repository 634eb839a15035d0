-- After a claim that found nothing: whether it has to be made in steps (count), and what comes next. For
-- the double condition on names see claim.
with recursive tops (q, n, p) as (
  select q, n, (select max(priority) from cairnq_tasks where status = 'queued' and queue = q and name = n and name between n and n)
  from unnest(:queues::text[]) as q, unnest(:names::text[]) as n
  union all
  select q, n, (select max(priority) from cairnq_tasks where status = 'queued' and queue = q and name = n and name between n and n and priority < p)
  from tops where p is not null)
select {{now}} as now,
  (exists (select 1 from holdfast_limits)
    or exists (select 1 from unnest(:queues::text[]) as q, unnest(:names::text[]) as n
      where (select min((metadata ->> 'holdfast_partition') collate "C") from cairnq_tasks
        where status = 'queued' and metadata ->> 'holdfast_partition' is not null and queue = q and name = n) is not null))::integer as count,
  (select min(c.run_at_ms) from tops cross join lateral (
    select run_at_ms from cairnq_tasks
    where status = 'queued' and queue = q and name = n and name between n and n and priority = p
    order by run_at_ms limit 1) c where p is not null) as run_at_ms,
  (select min(lease_until_ms) from cairnq_tasks where status = 'running' and lease_until_ms is not null) as lease_until_ms
