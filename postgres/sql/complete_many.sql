-- As complete, many at once: each list holds one column. The last condition is always true and looks
-- selective to the planner, which then looks each task up by its primary key; else it would read a whole
-- table of some ten thousand tasks, which takes ten times as long.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set
  status = case when cancel_requested_at_ms is null then 'succeeded' else 'canceled' end,
  result = case when cancel_requested_at_ms is null then c.result::jsonb else t.result end,
  progress = case when cancel_requested_at_ms is null then 1.0 else progress end,
  lease_until_ms = null, updated_at_ms = clock.now, completed_at_ms = clock.now
from clock, unnest(:id::text[], :worker_id::text[], :result::text[]) as c (id, worker, result)
where t.id = c.id and t.status = 'running' and t.worker_id = c.worker and t.lease_until_ms > clock.now
  and c.id = c.id || ''
returning t.id, t.queue, t.status
