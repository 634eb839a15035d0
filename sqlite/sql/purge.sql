-- Ended tasks, oldest first. Their keys go by the foreign key.
delete from cairnq_tasks where rowid in (
  select rowid from cairnq_tasks
  where status in ('succeeded', 'failed', 'canceled')
    and completed_at_ms is not null and completed_at_ms < :now - :older_ms
    and status = :status --? status
    and queue = :queue   --? queue
    and name = :name     --? name
  order by completed_at_ms limit :limit)
returning id
