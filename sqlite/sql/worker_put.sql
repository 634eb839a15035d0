-- Enters a worker. The row of one that holds a lock is never overwritten.
insert into holdfast_workers (id, token, host, pid, since_ms, seen_ms, until_ms, locked, state, concurrency, queues, names)
values (:worker_id, :key, json_extract(:value, '$.host'), json_extract(:value, '$.pid'), :now, :now, :now + :lease_ms,
  json_extract(:value, '$.locked'), json_extract(:value, '$.state'), json_extract(:value, '$.concurrency'),
  json_extract(:value, '$.queues'), json_extract(:value, '$.names'))
on conflict (id) do update set
  token = excluded.token, host = excluded.host, pid = excluded.pid, since_ms = excluded.since_ms, seen_ms = excluded.seen_ms,
  until_ms = excluded.until_ms, locked = excluded.locked, state = excluded.state, concurrency = excluded.concurrency,
  queues = excluded.queues, names = excluded.names
where holdfast_workers.locked = 0
returning id as worker_id
