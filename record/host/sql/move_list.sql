select record_id, direction, step, peer from moves order by updated_at, record_id
