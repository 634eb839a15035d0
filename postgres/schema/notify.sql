-- Tells who listens that a queue has a task to claim, or that a task has ended. Notifications only
-- shorten a sleep. Every task comes by here: pg_notify is called in a condition, which PL/pgSQL evaluates
-- by itself, and not by PERFORM, which would be a query and cost twice as much.
create or replace function cairnq_notify() returns trigger language plpgsql as $$
begin
  if new.status = 'queued' and (tg_op = 'INSERT' or old.status is distinct from 'queued') then
    if pg_notify('cairnq_queued', new.queue) is null then null; end if;
  elsif new.status in ('succeeded', 'failed', 'canceled') and (tg_op = 'INSERT' or old.status is distinct from new.status) then
    if pg_notify('cairnq_done', new.id) is null then null; end if;
  end if;
  return null;
end
$$;
drop trigger if exists cairnq_tasks_notify on cairnq_tasks;
create trigger cairnq_tasks_notify after insert or update of status on cairnq_tasks
  for each row when (new.status <> 'running') execute function cairnq_notify();
