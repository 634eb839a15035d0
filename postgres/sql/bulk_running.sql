-- Running tasks that nobody has asked to stop.
select id from cairnq_tasks
where status = 'running' and lease_until_ms is not null and cancel_requested_at_ms is null and created_at_ms <= :before_ms::bigint
  and queue = :queue::text                   --? queue
  and name = :name::text                     --? name
  and root_id = :root_id::text               --? root_id
  and correlation_id = :correlation_id::text --? correlation_id
limit :limit::bigint
