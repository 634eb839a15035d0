-- Queued tasks of a queue, counted no further than the limit.
select count(*) as count from (
  select 1 from cairnq_tasks where status = 'queued' and queue = :queue::text limit :limit::bigint) q
