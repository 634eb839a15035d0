-- What each worker runs: how many, and the first of them. See running_counts for the bounds.
select worker_id, id, name, queue, attempt, lease_until_ms, count from (
  select worker_id, id, name, queue, attempt, lease_until_ms, count(*) over (partition by worker_id) as count,
    row_number() over (partition by worker_id order by id) as place
  from cairnq_tasks where status = 'running' and lease_until_ms between 1 and 9e15)
where place <= :limit
order by worker_id, id
