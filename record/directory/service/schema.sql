create table if not exists locations (
  record_id text not null,
  gen {{int}} not null,
  hash text not null,
  host_id text not null,
  claims text not null,
  document text not null,
  expires_at {{int}} not null,
  primary key (record_id, gen)
);
create table if not exists hosts (
  id text primary key,
  name text not null,
  admitted_at {{int}} not null
);
