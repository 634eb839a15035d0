-- As bulk_failed, for tasks of any end, or of the one given.
select id, completed_at_ms from cairnq_tasks
where completed_at_ms is not null and completed_at_ms <= :before_ms::bigint
  and completed_at_ms >= :after_ms::bigint and (completed_at_ms, id) > (:after_ms::bigint, :after_id::text)
  and status = :status::text                 --? status
  and queue = :queue::text                   --? queue
  and name = :name::text                     --? name
  and root_id = :root_id::text               --? root_id
  and correlation_id = :correlation_id::text --? correlation_id
order by completed_at_ms, id limit :limit::bigint
