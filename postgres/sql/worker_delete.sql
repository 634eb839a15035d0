delete from holdfast_workers
where id = :worker_id::text
  and token = :key::text --? key
returning id as worker_id
