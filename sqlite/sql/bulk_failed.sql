-- Failed tasks in the order of their ends, from a cursor on; each has an error, as their index wants.
-- The name is no way in here: its index does not know the order, and would be read to the end for
-- each step.
select id, completed_at_ms from cairnq_tasks
where status = 'failed' and error is not null and completed_at_ms <= :before_ms
  and completed_at_ms >= :after_ms and (completed_at_ms > :after_ms or id > :after_id)
  and +queue = :queue                  --? queue
  and +name = :name                    --? name
  and +root_id = :root_id              --? root_id
  and +correlation_id = :correlation_id --? correlation_id
order by completed_at_ms, id limit :limit
