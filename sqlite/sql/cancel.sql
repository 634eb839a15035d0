-- Queued: canceled at once. Running: the worker is asked.
update cairnq_tasks set
  status = case when status = 'queued' then 'canceled' else status end,
  completed_at_ms = case when status = 'queued' then :now else completed_at_ms end,
  cancel_requested_at_ms = case when status = 'running' then :now else cancel_requested_at_ms end,
  updated_at_ms = :now
where id = :id and status in ('queued', 'running')
returning {{columns}}
