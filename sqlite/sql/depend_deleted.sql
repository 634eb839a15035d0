-- A task was deleted. What its children may ask about it is kept until they are deleted too.
create trigger if not exists holdfast_depend_deleted after delete on cairnq_tasks
when exists (select 1 from holdfast_dependencies where parent_id = old.id)
  or exists (select 1 from holdfast_waits where task_id = old.id)
begin
  insert or replace into holdfast_purged (id, name, status, result, error)
    select old.id, old.name, old.status, old.result, old.error
    where exists (select 1 from holdfast_dependencies where parent_id = old.id);
  insert into holdfast_settling (id, cause, status, at_ms)
    values (old.id, null, 'purged', cast((julianday('now') - 2440587.5) * 86400000 as integer));
  {{settle}}
  -- Who was canceled because of it, and is retried, does not wait for what can never happen.
  update holdfast_waits set pending = pending - 1
    where released_at_ms is null and task_id in (select child_id from holdfast_dependencies where parent_id = old.id and met = 0);
  update holdfast_dependencies set met = 1 where parent_id = old.id and met = 0;
  delete from holdfast_purged where id in (select parent_id from holdfast_dependencies where child_id = old.id)
    and not exists (select 1 from holdfast_dependencies d where d.parent_id = holdfast_purged.id and d.child_id <> old.id);
  delete from holdfast_dependencies where child_id = old.id;
  delete from holdfast_waits where task_id = old.id;
end
