-- Enters a worker. The row of one that holds a lock is never overwritten.
with clock as materialized (select {{now}} as now, :value::jsonb as v)
insert into holdfast_workers as w (id, token, host, pid, since_ms, seen_ms, until_ms, locked, state, concurrency, queues, names)
select :worker_id::text, :key::text, v ->> 'host', (v ->> 'pid')::integer, now, now, now + :lease_ms::bigint,
  v ->> 'locked' = '1', v ->> 'state', (v ->> 'concurrency')::integer, v -> 'queues', v -> 'names' from clock
on conflict (id) do update set
  token = excluded.token, host = excluded.host, pid = excluded.pid, since_ms = excluded.since_ms, seen_ms = excluded.seen_ms,
  until_ms = excluded.until_ms, locked = excluded.locked, state = excluded.state, concurrency = excluded.concurrency,
  queues = excluded.queues, names = excluded.names
where not w.locked
returning id as worker_id
