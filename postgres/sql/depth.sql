-- Queued tasks of a queue, counted no further than the limit. The order makes the planner take the index.
select count(*) as count from (
  select 1 from cairnq_tasks where status = 'queued' and queue = :queue::text
  order by priority desc, run_at_ms, id limit :limit::bigint) q
