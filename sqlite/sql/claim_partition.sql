-- The next partition of a name that has queued tasks.
select json_extract(metadata, '$.holdfast_partition') as partition from cairnq_tasks
where status = 'queued' and metadata <> '{}' and json_extract(metadata, '$.holdfast_partition') is not null
  and queue = :queue and name = :name and json_extract(metadata, '$.holdfast_partition') > :partition
order by json_extract(metadata, '$.holdfast_partition') limit 1
