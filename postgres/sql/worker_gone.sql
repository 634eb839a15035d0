-- Workers whose lock nobody holds, and rows to be forgotten (count 0). A lock on a bigint shows its
-- halves in classid and objid, with objsubid 1.
with held as materialized (
  select (classid::bigint << 32) | objid::bigint as lock from pg_locks
  where locktype = 'advisory' and objsubid = 1 and granted and database = (select oid from pg_database where datname = current_database()))
select id as worker_id, token as key, locked::integer as count
from holdfast_workers w
where case when locked then not exists (select from held where held.lock = hashtextextended(w.id, w.tableoid::bigint))
  else until_ms < {{now}} end
