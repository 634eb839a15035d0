delete from holdfast_workers
where id = :worker_id
  and token = :key --? key
returning id as worker_id
