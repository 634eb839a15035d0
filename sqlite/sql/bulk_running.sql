-- Running tasks that nobody has asked to stop. See running_counts for the bounds.
select id from cairnq_tasks
where status = 'running' and lease_until_ms between 1 and 9e15 and cancel_requested_at_ms is null and created_at_ms <= :before_ms
  and queue = :queue                   --? queue
  and name = :name                     --? name
  and root_id = :root_id               --? root_id
  and correlation_id = :correlation_id --? correlation_id
limit :limit
