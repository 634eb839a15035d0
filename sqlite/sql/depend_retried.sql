-- A task was retried: it waits for its parents again, and its children for it.
create trigger if not exists holdfast_depend_retried after update of status on cairnq_tasks
when new.status = 'queued' and old.status in ('succeeded', 'failed', 'canceled')
  and (exists (select 1 from holdfast_waits where task_id = new.id)
    or exists (select 1 from holdfast_dependencies where parent_id = new.id))
begin
  update holdfast_waits set run_at_ms = new.updated_at_ms,
    released_at_ms = case when pending = 0 then new.updated_at_ms end
    where task_id = new.id and released_at_ms is null;
  update cairnq_tasks set run_at_ms = {{waiting}}
    where id = new.id and exists (select 1 from holdfast_waits where task_id = new.id and released_at_ms is null);
  update holdfast_waits set pending = pending + 1
    where released_at_ms is null and task_id in (select child_id from holdfast_dependencies where parent_id = new.id and met = 1);
  update holdfast_dependencies set met = 0
    where parent_id = new.id and met = 1 and child_id in (
      select w.task_id from holdfast_dependencies d join holdfast_waits w on w.task_id = d.child_id
      where d.parent_id = new.id and w.released_at_ms is null);
end
