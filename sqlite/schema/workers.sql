-- Ours: the workers at work. One without a lock (locked = 0), or whose lock file somebody deleted, is
-- forgotten when it was not seen until until_ms.
create table if not exists holdfast_workers (
  id text primary key,
  token text not null,
  host text not null,
  pid integer not null,
  since_ms integer not null,
  seen_ms integer not null,
  until_ms integer not null,
  locked integer not null,
  state text not null check (state in ('running', 'stopping')),
  concurrency integer not null,
  queues text not null check (json_valid(queues)),
  names text not null check (json_valid(names))
);
