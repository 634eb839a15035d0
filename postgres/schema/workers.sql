-- Ours: the workers at work. One without a lock is forgotten when it was not seen until until_ms.
create table if not exists holdfast_workers (
  id text primary key,
  token text not null,
  host text not null,
  pid integer not null,
  since_ms bigint not null,
  seen_ms bigint not null,
  until_ms bigint not null,
  locked boolean not null,
  state text not null check (state in ('running', 'stopping')),
  concurrency integer not null,
  queues jsonb not null,
  names jsonb not null
);
