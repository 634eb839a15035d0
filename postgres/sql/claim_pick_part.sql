-- Due tasks of one partition, that nobody else is taking.
select id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and metadata ->> 'holdfast_partition' is not null
  and queue = :queue::text and name = :name::text and (metadata ->> 'holdfast_partition') collate "C" = :partition::text and run_at_ms <= :now::bigint
order by priority desc, run_at_ms, id limit :limit::bigint
for update skip locked
