-- Newest first. A root is looked for in two ways, since the index holds only those below it.
select {{columns}} from cairnq_tasks
where 1 = 1
  and status = :status                 --? status
  and queue = :queue                   --? queue
  and name = :name                     --? name
  and (root_id = :root_id and root_id <> id or id = :root_id and root_id = id) --? root_id
  and correlation_id = :correlation_id --? correlation_id
  and (created_at_ms, id) < (:before_ms, :before_id) --? before_id
order by created_at_ms desc, id desc
limit :limit offset :offset
