-- A sign of life, a new state, or a new lock and with it a new token.
update holdfast_workers set
  token = json_extract(:value, '$.token'), state = json_extract(:value, '$.state'),
  seen_ms = :now, until_ms = :now + :lease_ms
where id = :worker_id and token = :key
returning id as worker_id
