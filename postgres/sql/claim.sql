-- A claim in one statement, where no shared limit and no partition asks for more care. Each queue and
-- name is walked from priority to priority; of the due tasks found, more than wanted are
-- candidates, so that workers who claim at the same time all find some that are not locked. The guard asks
-- for a minimum because the planner takes an index for that; for a mere EXISTS it reads the whole table.
-- "name between n and n" says nothing new, but looks selective to the planner, also where there has been one
-- name only: else it takes the index without names, and walks through the tasks of names yet to come.
with recursive clock as materialized (select {{now}} as now),
guard as materialized (
  select not exists (select 1 from holdfast_limits)
    and not exists (select 1 from unnest(:queues::text[]) as q, unnest(:names::text[]) as n
      where (select min((metadata ->> 'holdfast_partition') collate "C") from cairnq_tasks
        where status = 'queued' and metadata ->> 'holdfast_partition' is not null and queue = q and name = n) is not null) as plain),
tops (q, n, p) as (
  select q, n, (select max(priority) from cairnq_tasks where status = 'queued' and queue = q and name = n and name between n and n)
  from unnest(:queues::text[]) as q, unnest(:names::text[]) as n
  where (select plain from guard)
  union all
  select q, n, (select max(priority) from cairnq_tasks where status = 'queued' and queue = q and name = n and name between n and n and priority < p)
  from tops where p is not null),
candidates as (
  select c.at, c.priority, c.run_at_ms, c.id
  from tops cross join lateral (
    select ctid as at, id, priority, run_at_ms from cairnq_tasks
    where status = 'queued' and queue = q and name = n and name between n and n and priority = p and run_at_ms <= (select now from clock)
    order by run_at_ms, id limit :limit::bigint + least(:limit::bigint * 2, 128)) c
  where p is not null
  order by c.priority desc, c.run_at_ms, c.id limit :limit::bigint + least(:limit::bigint * 2, 128)),
taken as materialized (
  -- Row by row in the candidates' order until there are enough, by their places: a plain join would let
  -- the planner read every queued task. A row that changed place since the statement began is left for
  -- the next claim.
  select l.at from candidates c cross join lateral (
    select t.ctid as at from cairnq_tasks t where t.ctid = c.at and t.status = 'queued'
    for update skip locked) l
  limit :limit::bigint)
update cairnq_tasks t set status = 'running', worker_id = :worker_id::text, lease_until_ms = clock.now + :lease_ms::bigint,
  attempt = attempt + 1, updated_at_ms = clock.now
from taken, clock
where t.ctid = taken.at
returning {{t.columns}}
