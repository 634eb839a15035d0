-- The tables of the task protocol, as migration 0001 leaves them. Tasks are updated in place a few
-- times each, so pages keep some room for it.
create table if not exists cairnq_tasks (
  id text primary key,
  name text not null,
  queue text not null default 'default',
  status text not null check (status in ('queued', 'running', 'succeeded', 'failed', 'canceled')),
  payload jsonb not null,
  result jsonb,
  error jsonb,
  metadata jsonb not null default '{}',
  progress double precision,
  message text,
  attempt integer not null default 0,
  max_attempts integer not null default 3,
  priority integer not null default 0,
  worker_id text,
  lease_until_ms bigint,
  run_at_ms bigint not null,
  cancel_requested_at_ms bigint,
  parent_id text,
  root_id text,
  correlation_id text,
  created_at_ms bigint not null,
  updated_at_ms bigint not null,
  completed_at_ms bigint
);
create table if not exists cairnq_task_keys (
  key text primary key,
  task_id text not null references cairnq_tasks (id) on delete cascade,
  created_at_ms bigint not null,
  updated_at_ms bigint not null
);
create table if not exists cairnq_meta (key text primary key, value text not null);
