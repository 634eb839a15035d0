-- Takes a worker's lock until the transaction ends. No row: somebody holds it, or the worker is not registered.
with w as materialized (select id, tableoid::bigint as seed from holdfast_workers where id = :worker_id::text)
select id as worker_id from w where pg_try_advisory_xact_lock(hashtextextended(id, seed))
