-- Attempts that failed. The trigger looks only at updates that name the error column: those that end
-- an attempt badly, in every library. A success pays nothing.
create table if not exists holdfast_attempts (
  seq integer primary key,
  task_id text not null references cairnq_tasks (id) on delete cascade,
  attempt integer not null,
  worker_id text,
  ended_at_ms integer not null,
  status text not null,  -- what became of the task
  error text not null
);
create index if not exists holdfast_attempts_task_idx on holdfast_attempts (task_id, seq);
create trigger if not exists holdfast_history after update of error on cairnq_tasks
when old.status = 'running' and new.status in ('queued', 'failed', 'canceled')
  and (new.error is not null or old.lease_until_ms <= new.updated_at_ms)
begin
  insert into holdfast_attempts (task_id, attempt, worker_id, ended_at_ms, status, error)
  values (new.id, old.attempt, old.worker_id, new.updated_at_ms, new.status,
    -- Recovery says why only when it was the last attempt; before, the column holds an older error.
    case when old.lease_until_ms <= new.updated_at_ms and new.status <> 'failed'
      then '{"type":"LeaseExpired","code":"lease_expired","message":"the lease ended before the attempt did","retryable":true,"details":{}}'
      else new.error end);
  delete from holdfast_attempts where task_id = new.id and seq <= (
    select seq from holdfast_attempts where task_id = new.id order by seq desc limit 1 offset 100);
end;
