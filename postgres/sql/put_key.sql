-- A key points at its new current task.
with clock as materialized (select {{now}} as now)
insert into cairnq_task_keys (key, task_id, created_at_ms, updated_at_ms)
select :key::text, :id::text, clock.now, clock.now from clock
on conflict (key) do update set task_id = excluded.task_id, updated_at_ms = excluded.updated_at_ms
