-- Ended tasks, oldest first. Their keys go by the foreign key.
with clock as materialized (select {{now}} as now)
delete from cairnq_tasks where id in (
  select id from cairnq_tasks
  where status in ('succeeded', 'failed', 'canceled')
    and completed_at_ms is not null and completed_at_ms < (select now from clock) - :older_ms::bigint
    and status = :status::text --? status
    and queue = :queue::text   --? queue
    and name = :name::text     --? name
  order by completed_at_ms limit :limit::bigint
  for update skip locked)
returning id
