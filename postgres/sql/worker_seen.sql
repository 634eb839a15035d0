-- A sign of life, a new state, or a new lock and with it a new token.
with clock as materialized (select {{now}} as now, :value::jsonb as v)
update holdfast_workers w set
  token = v ->> 'token', state = v ->> 'state', seen_ms = now, until_ms = now + :lease_ms::bigint
from clock
where w.id = :worker_id::text and w.token = :key::text
returning w.id as worker_id
