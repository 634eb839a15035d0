-- Tasks that wait for others. A program that knows nothing of these tables sees a waiting task as one
-- that is due in the year 9999. The triggers that look after the tables are made by the first
-- submission that needs them (sql/depend_*.sql), so that nobody else pays for them.
create table if not exists holdfast_waits (
  task_id text primary key,
  run_at_ms integer not null,  -- not to start before, once released
  keep integer not null,       -- 1: a parent's failure does not cancel it
  pending integer not null,    -- how many of its parents it still waits for
  released_at_ms integer
) without rowid;
create table if not exists holdfast_dependencies (
  child_id text not null,
  parent_id text not null,
  finished integer not null,   -- 1: any end of the parent will do
  met integer not null,
  position integer not null,   -- as the submitter named them
  primary key (child_id, parent_id)
) without rowid;
create index if not exists holdfast_dependencies_parent_idx on holdfast_dependencies (parent_id, met);
-- What is left of parents that were deleted before their children.
create table if not exists holdfast_purged (
  id text primary key,
  name text not null,
  status text not null,
  result text,
  error text
) without rowid;
-- Work table of the triggers, empty outside of them: tasks that have just ended, and by whose end.
create table if not exists holdfast_settling (
  id text primary key,
  cause text,
  status text not null,
  at_ms integer not null
) without rowid;
-- Who is canceled with them. Triggers do not fire themselves in SQLite, so the whole cascade is found
-- at once.
create view if not exists holdfast_doomed as
with recursive doomed (id, cause, status, at_ms) as (
  select id, cause, status, at_ms from holdfast_settling where status <> 'succeeded'
  union
  select d.child_id, d.parent_id, 'canceled', p.at_ms
  from doomed p
  join holdfast_dependencies d on d.parent_id = p.id
  join holdfast_waits w on w.task_id = d.child_id
  join cairnq_tasks t on t.id = d.child_id
  where d.met = 0 and d.finished = 0 and w.released_at_ms is null and t.status = 'queued'
    and (w.keep = 0 or p.status = 'purged')
)
select id, cause, status, at_ms from doomed where cause is not null;
