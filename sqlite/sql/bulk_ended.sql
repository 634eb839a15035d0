-- As bulk_failed, for tasks of any end, or of the one given.
select id, completed_at_ms from cairnq_tasks
where completed_at_ms is not null and completed_at_ms <= :before_ms
  and completed_at_ms >= :after_ms and (completed_at_ms > :after_ms or id > :after_id)
  and +status = :status                --? status
  and queue = :queue                  --? queue
  and +name = :name                    --? name
  and +root_id = :root_id              --? root_id
  and +correlation_id = :correlation_id --? correlation_id
order by completed_at_ms, id limit :limit
