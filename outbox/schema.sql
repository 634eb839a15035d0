create table if not exists owner (
  id integer primary key check (id = 1),
  application text not null
) strict;

-- instance names this file, so that its rows are good in no other.
create table if not exists queue_format (
  id integer primary key check (id = 1),
  version integer not null,
  instance text not null
) strict;

-- position is the entry's place in its lane: its own sequence, or that of the entry that it replaces.
-- The check of state is no "in": of more than two words SQLite makes a table each time that it checks.
-- unsure is 1 while the Host may have done the write without our knowing. Times are milliseconds since 1970. mac authenticates
-- the row where the application gave a key; see seal.go.
create table if not exists queue (
  sequence integer primary key autoincrement,
  operation_id text not null unique,
  patient text not null,
  operation text not null,
  position integer not null,
  intent text not null,
  digest text not null,
  state text not null check (state = 'pending' or state = 'submitted' or state = 'committed' or state = 'conflicted' or state = 'rejected' or state = 'discarded' or state = 'quarantined'),
  waits integer default 1,
  result text,
  error text,
  detail text,
  attempts integer not null default 0,
  unsure integer not null default 0,
  replaced_by text,
  created integer not null,
  changed integer not null,
  mac blob,
  check ((waits is 1) = (state not in ('committed', 'discarded')))
) strict;

-- What is done is most of a queue, so the indexes that a flush walks leave it out. They depend on waits and not on state, so that
-- sending an entry does not touch them.
create index if not exists queue_lanes on queue (patient, position) where waits = 1;
create index if not exists queue_open on queue (sequence) where waits = 1;
create index if not exists queue_gone on queue (sequence) where state = 'discarded';
create index if not exists queue_patient on queue (patient, sequence);

-- host is '' until it is known where the patient's record lives.
create table if not exists queue_routes (
  patient text primary key,
  host text not null,
  generation integer,
  address text
) strict, without rowid;

-- Operation ids of entries that were pruned: they are never used again.
create table if not exists queue_past (
  operation_id text primary key,
  digest text not null
) strict, without rowid;

create table if not exists queue_audit (
  id integer primary key autoincrement,
  at integer not null,
  operation_id text not null,
  action text not null,
  reason text not null,
  actor text not null,
  state text not null,
  error text,
  replaced_by text,
  mac blob
) strict;
create index if not exists queue_audit_operation on queue_audit (operation_id, id);
