-- Due tasks of one partition, from the index alone.
select rowid, id, priority, run_at_ms from cairnq_tasks
where status = 'queued' and metadata <> '{}' and json_extract(metadata, '$.holdfast_partition') is not null
  and queue = :queue and name = :name and json_extract(metadata, '$.holdfast_partition') = :partition and run_at_ms <= :now
order by priority desc, run_at_ms, id limit :limit
