-- Bounds that all workers of the database share, and pauses.
create table if not exists holdfast_limits (
  kind text not null check (kind in ('queue', 'name')),
  name text not null,
  concurrency integer not null default 0,
  rate_count integer not null default 0,
  rate_period_ms integer not null default 0,
  rate_burst integer not null default 0,
  tat_us integer not null default 0,
  paused_at_ms integer,
  updated_at_ms integer not null,
  primary key (kind, name)
);
-- Partitions of a name, to be served in turn. The first condition keeps the second from being
-- computed for tasks without metadata.
create index if not exists holdfast_partition_idx on cairnq_tasks
  (queue, name, json_extract(metadata, '$.holdfast_partition'), priority desc, run_at_ms, id)
  where status = 'queued' and metadata <> '{}' and json_extract(metadata, '$.holdfast_partition') is not null;
