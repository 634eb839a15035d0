-- What is to be canceled in a tree: running tasks first, so that they submit no more.
select id from (
  select id, status from cairnq_tasks
  where id = :id::text and (status = 'queued' or status = 'running' and cancel_requested_at_ms is null)
  union all
  select id, status from cairnq_tasks
  where root_id = :id::text and root_id <> id and (status = 'queued' or status = 'running' and cancel_requested_at_ms is null)
) live order by status desc limit :limit::bigint
