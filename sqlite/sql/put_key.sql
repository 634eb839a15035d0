-- A key points at its new current task.
insert into cairnq_task_keys (key, task_id, created_at_ms, updated_at_ms)
values (:key, :id, :now, :now)
on conflict (key) do update set task_id = excluded.task_id, updated_at_ms = excluded.updated_at_ms
