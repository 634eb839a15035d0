-- Running tasks whose lease has ended. Cancel wins, then another attempt, then failure.
with clock as materialized (select {{now}} as now),
expired as materialized (
  select id from cairnq_tasks
  where status = 'running' and lease_until_ms is not null and lease_until_ms <= (select now from clock)
  order by lease_until_ms limit :limit::bigint
  for update skip locked)
update cairnq_tasks t set
  status = case when cancel_requested_at_ms is not null then 'canceled' when attempt < max_attempts then 'queued' else 'failed' end,
  error = case when cancel_requested_at_ms is null and attempt >= max_attempts then :error::jsonb else error end,
  run_at_ms = case when cancel_requested_at_ms is null and attempt < max_attempts then clock.now else run_at_ms end,
  worker_id = case when cancel_requested_at_ms is null and attempt < max_attempts then null else worker_id end,
  progress = case when cancel_requested_at_ms is null and attempt < max_attempts then null else progress end,
  message = case when cancel_requested_at_ms is null and attempt < max_attempts then null else message end,
  completed_at_ms = case when cancel_requested_at_ms is null and attempt < max_attempts then null else clock.now end,
  lease_until_ms = null,
  updated_at_ms = clock.now
from clock
where t.id = any(array(select id from expired)) -- not a join, for which the planner may read the table
returning t.id, t.queue, t.status
