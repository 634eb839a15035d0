-- Queued tasks, in any order: those that were found do not stay queued.
select id from cairnq_tasks
where status = 'queued' and created_at_ms <= :before_ms::bigint
  and queue = :queue::text                   --? queue
  and name = :name::text                     --? name
  and root_id = :root_id::text               --? root_id
  and correlation_id = :correlation_id::text --? correlation_id
limit :limit::bigint
