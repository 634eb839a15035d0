-- A tree without its payloads and results. The index of roots holds only tasks that have one above them.
select id, name, queue, status, attempt, max_attempts, worker_id, run_at_ms, cancel_requested_at_ms, parent_id, root_id,
  created_at_ms, updated_at_ms, completed_at_ms
from cairnq_tasks where id = :id::text
union all
select id, name, queue, status, attempt, max_attempts, worker_id, run_at_ms, cancel_requested_at_ms, parent_id, root_id,
  created_at_ms, updated_at_ms, completed_at_ms
from cairnq_tasks where root_id = :id::text and root_id <> id
limit :limit::bigint
