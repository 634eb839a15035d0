-- The next partition of a name that has queued tasks.
select metadata ->> 'holdfast_partition' as partition from cairnq_tasks
where status = 'queued' and metadata ->> 'holdfast_partition' is not null
  and queue = :queue::text and name = :name::text and (metadata ->> 'holdfast_partition') collate "C" > :partition::text
order by (metadata ->> 'holdfast_partition') collate "C" limit 1
