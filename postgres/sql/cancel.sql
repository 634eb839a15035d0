-- Queued: canceled at once. Running: the worker is asked.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set
  status = case when status = 'queued' then 'canceled' else status end,
  completed_at_ms = case when status = 'queued' then clock.now else completed_at_ms end,
  cancel_requested_at_ms = case when status = 'running' then clock.now else cancel_requested_at_ms end,
  updated_at_ms = clock.now
from clock
where id = :id::text and status in ('queued', 'running')
returning {{columns}}
