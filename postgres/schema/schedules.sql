-- Schedules: what to submit, and when. next_at_ms is null when no tick is left.
create table if not exists holdfast_schedules (
  name text primary key,
  spec text not null,
  zone text not null,
  task text not null,
  queue text not null,
  payload jsonb not null,
  options jsonb not null,
  missed text not null,
  bound integer not null,
  grace_ms bigint not null,
  anchor_ms bigint not null,
  next_at_ms bigint,
  last_at_ms bigint,
  last_task text,
  paused_at_ms bigint,
  digest text not null,
  created_at_ms bigint not null,
  updated_at_ms bigint not null
);
create index if not exists holdfast_schedules_due_idx on holdfast_schedules (next_at_ms) where next_at_ms is not null and paused_at_ms is null;
