-- Queued tasks, in any order: those that were found do not stay queued. Every queue has a name; saying so
-- makes the planner prefer the index of queued tasks.
select id from cairnq_tasks
where status = 'queued' and queue > '' and created_at_ms <= :before_ms
  and queue = :queue                   --? queue
  and name = :name                     --? name
  and root_id = :root_id               --? root_id
  and correlation_id = :correlation_id --? correlation_id
limit :limit
