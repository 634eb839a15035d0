-- As retry, with another payload.
with clock as materialized (select {{now}} as now)
update cairnq_tasks t set status = 'queued', payload = :payload::jsonb, run_at_ms = clock.now, updated_at_ms = clock.now,
  attempt = 0,
  error = null, worker_id = null, lease_until_ms = null, cancel_requested_at_ms = null,
  completed_at_ms = null, progress = null, message = null
from clock
where id = :id::text and status in ('failed', 'canceled')
returning {{columns}}
