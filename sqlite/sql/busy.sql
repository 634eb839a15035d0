-- Whether anything of a queue is due or running. See running_counts for the bounds.
select exists (select 1 from cairnq_tasks where status = 'running' and lease_until_ms between 1 and 9e15 and queue = :queue)
  or exists (select 1 from cairnq_tasks where status = 'queued' and queue = :queue and run_at_ms <= :now) as count
