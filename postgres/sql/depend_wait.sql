-- A child keeps its own time here while it waits.
insert into holdfast_waits (task_id, run_at_ms, keep, pending, released_at_ms)
select id, run_at_ms, :keep::boolean, :count::integer, case when :count::integer = 0 then {{now}} end from cairnq_tasks where id = :id::text
