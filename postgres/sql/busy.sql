-- Whether anything of a queue is due or running.
with clock as materialized (select {{now}} as now)
select (exists (select 1 from cairnq_tasks where status = 'running' and lease_until_ms is not null and queue = :queue::text)
  or exists (select 1 from cairnq_tasks where status = 'queued' and queue = :queue::text and run_at_ms <= clock.now))::integer as count
from clock
