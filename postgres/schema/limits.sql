-- Bounds that all workers of the database share, and pauses.
create table if not exists holdfast_limits (
  kind text not null check (kind in ('queue', 'name')),
  name text not null,
  concurrency integer not null default 0,
  rate_count integer not null default 0,
  rate_period_ms bigint not null default 0,
  rate_burst integer not null default 0,
  tat_us bigint not null default 0,
  paused_at_ms bigint,
  updated_at_ms bigint not null,
  primary key (kind, name)
);
-- Partitions of a name, to be served in turn.
create index if not exists holdfast_partition_idx on cairnq_tasks
  (queue, name, ((metadata ->> 'holdfast_partition') collate "C"), priority desc, run_at_ms, id)
  where status = 'queued' and metadata ->> 'holdfast_partition' is not null;
