-- Ends the leases of a worker now; what recover.sql does with them then is the rule for all.
with clock as materialized (select {{now}} as now),
theirs as materialized (
  select id from cairnq_tasks, clock
  where status = 'running' and lease_until_ms is not null and lease_until_ms > clock.now and worker_id = :worker_id::text
  order by id for update of cairnq_tasks)
update cairnq_tasks t set lease_until_ms = clock.now
from theirs, clock
where t.id = theirs.id
returning t.id
