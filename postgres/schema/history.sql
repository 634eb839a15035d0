-- Attempts that failed. The trigger looks only at updates that name the error column: those that end
-- an attempt badly, in every library. A success pays nothing.
create table if not exists holdfast_attempts (
  seq bigint generated always as identity primary key,
  task_id text not null,
  attempt integer not null,
  worker_id text,
  ended_at_ms bigint not null,
  status text not null,  -- what became of the task
  error jsonb not null
);
create index if not exists holdfast_attempts_task_idx on holdfast_attempts (task_id, seq);
create or replace function holdfast_history() returns trigger language plpgsql set search_path from current as $$
begin
  insert into holdfast_attempts (task_id, attempt, worker_id, ended_at_ms, status, error)
  values (new.id, old.attempt, old.worker_id, new.updated_at_ms, new.status,
    -- Recovery says why only when it was the last attempt; before, the column holds an older error.
    case when old.lease_until_ms <= new.updated_at_ms and new.status <> 'failed'
      then '{"type":"LeaseExpired","code":"lease_expired","message":"the lease ended before the attempt did","retryable":true,"details":{}}'::jsonb
      else new.error end);
  delete from holdfast_attempts where task_id = new.id and seq <= (
    select seq from holdfast_attempts where task_id = new.id order by seq desc limit 1 offset 100);
  return null;
end
$$;
create or replace function holdfast_history_deleted() returns trigger language plpgsql set search_path from current as $$
begin
  delete from holdfast_attempts where task_id in (select id from gone);
  return null;
end
$$;
drop trigger if exists holdfast_history on cairnq_tasks;
create trigger holdfast_history after update of error on cairnq_tasks for each row
  when (old.status = 'running' and new.status in ('queued', 'failed', 'canceled')
    and (new.error is not null or old.lease_until_ms <= new.updated_at_ms))
  execute function holdfast_history();
drop trigger if exists holdfast_history_deleted on cairnq_tasks;
create trigger holdfast_history_deleted after delete on cairnq_tasks referencing old table as gone
  for each statement execute function holdfast_history_deleted();
