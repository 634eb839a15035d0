-- The protocol's indexes under the protocol's names, each no larger than the statements need that
-- read it: a task is inserted once and updated twice, and every full index would be written each time.
drop index if exists cairnq_tasks_claim_idx;
drop index if exists cairnq_tasks_claim_name_idx;
drop index if exists cairnq_tasks_lease_idx;
drop index if exists cairnq_tasks_completed_idx;
drop index if exists cairnq_tasks_status_completed_idx;
drop index if exists cairnq_tasks_queue_completed_idx;
drop index if exists cairnq_tasks_name_idx;
drop index if exists cairnq_tasks_root_idx;
drop index if exists cairnq_tasks_correlation_idx;
-- Without the status in the key: the planner drops a condition that the index implies, and a key column
-- without condition ends the search there, so that each claim would read the queue's whole index.
create index cairnq_tasks_claim_idx on cairnq_tasks (queue, priority desc, run_at_ms, id)
  where status = 'queued';
create index cairnq_tasks_claim_name_idx on cairnq_tasks (queue, name, priority desc, run_at_ms, id)
  where status = 'queued';
create index cairnq_tasks_lease_idx on cairnq_tasks (lease_until_ms)
  where status = 'running' and lease_until_ms is not null;
create index cairnq_tasks_completed_idx on cairnq_tasks (completed_at_ms)
  where completed_at_ms is not null;
-- What is looked for by status or by name among ended tasks is what went wrong, and who is looked for
-- by root has one that is not itself.
create index cairnq_tasks_status_completed_idx on cairnq_tasks (status, completed_at_ms)
  where error is not null;
create index cairnq_tasks_queue_completed_idx on cairnq_tasks (queue, completed_at_ms)
  where completed_at_ms is not null;
create index cairnq_tasks_name_idx on cairnq_tasks (name)
  where error is not null;
create index cairnq_tasks_root_idx on cairnq_tasks (root_id)
  where root_id <> id;
create index cairnq_tasks_correlation_idx on cairnq_tasks (correlation_id)
  where correlation_id is not null;
-- Ours: without it, each purged task would scan the keys for its own.
create index if not exists holdfast_task_keys_task_idx on cairnq_task_keys (task_id);
