-- Whether anything of a queue is due or running.
select exists (select 1 from cairnq_tasks where status = 'running' and lease_until_ms is not null and queue = :queue)
  or exists (select 1 from cairnq_tasks where status = 'queued' and queue = :queue and run_at_ms <= :now) as count
