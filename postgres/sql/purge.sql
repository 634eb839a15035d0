-- Ended tasks, oldest first. Their keys go by the foreign key. The choice is made once, whatever the plan.
with clock as materialized (select {{now}} as now),
chosen as materialized (
  select id from cairnq_tasks
  where status in ('succeeded', 'failed', 'canceled')
    and completed_at_ms is not null and completed_at_ms < (select now from clock) - :older_ms::bigint
    and status = :status::text --? status
    and queue = :queue::text   --? queue
    and name = :name::text     --? name
  order by completed_at_ms limit :limit::bigint
  for update skip locked)
delete from cairnq_tasks t using chosen where t.id = chosen.id
returning t.id
