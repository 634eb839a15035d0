-- A new task. Every value is known to the caller, so no row is asked back.
insert into cairnq_tasks (id, name, queue, status, payload, metadata, max_attempts, priority, run_at_ms,
  parent_id, root_id, correlation_id, created_at_ms, updated_at_ms)
values (:id, :name, :queue, 'queued', :payload, :metadata, :max_attempts, :priority, :now + :delay_ms,
  :parent_id, :root_id, :correlation_id, :now, :now)
