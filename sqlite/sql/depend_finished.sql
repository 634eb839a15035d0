-- A task has ended, by whomever: its children are released or canceled.
create trigger if not exists holdfast_depend_finished after update of status on cairnq_tasks
when new.status in ('succeeded', 'failed', 'canceled') and old.status in ('queued', 'running')
  and exists (select 1 from holdfast_dependencies where parent_id = new.id)
  and not exists (select 1 from holdfast_settling)
begin
  insert into holdfast_settling (id, cause, status, at_ms)
    values (new.id, null, new.status, coalesce(new.completed_at_ms, new.updated_at_ms));
  {{settle}}
end
