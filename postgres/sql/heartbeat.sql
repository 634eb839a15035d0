-- Extends the leases that the worker still holds, of all the tasks named. A row that another transaction
-- has locked is not waited for, since that would hold up all the others: it is answered as it is, held but
-- without an extended lease.
with clock as materialized (select {{now}} as now),
mine as materialized (
  select id from cairnq_tasks
  where id = any(:ids::text[])
    and status = 'running' and worker_id = :worker_id::text and lease_until_ms > (select now from clock)
  for update skip locked),
extended as (
  update cairnq_tasks t set lease_until_ms = clock.now + :lease_ms::bigint, updated_at_ms = clock.now
  from mine, clock
  where t.id = mine.id
  returning t.id, t.lease_until_ms, t.cancel_requested_at_ms)
select id, lease_until_ms, cancel_requested_at_ms from extended
union all
select id, null, cancel_requested_at_ms from cairnq_tasks
where id = any(:ids::text[])
  and status = 'running' and worker_id = :worker_id::text and lease_until_ms > (select now from clock)
  and id not in (select id from mine)
