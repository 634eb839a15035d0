-- Newest first.
select {{columns}} from cairnq_tasks
where true
  and status = :status::text                 --? status
  and queue = :queue::text                   --? queue
  and name = :name::text                     --? name
  and root_id = :root_id::text               --? root_id
  and correlation_id = :correlation_id::text --? correlation_id
  and (created_at_ms, id) < (:before_ms::bigint, :before_id::text) --? before_id
order by created_at_ms desc, id desc
limit :limit::bigint offset :offset::bigint
