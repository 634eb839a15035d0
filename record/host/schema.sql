create table if not exists identity (
  id {{int}} primary key,
  host text not null
);
create table if not exists records (
  rk {{rowid}},
  record_id text not null unique,
  state text not null,
  address text not null,
  seq {{int}} not null,
  last_hash text not null,
  created_at {{int}} not null
);
create table if not exists versions (
  rk {{int}} not null,
  type text not null,
  id text not null,
  version {{int}} not null,
  seq {{int}} not null,
  deleted {{int}} not null,
  last_updated {{int}} not null,
  content {{blob}},
  primary key (rk, type, id, version)
);
create unique index if not exists versions_seq on versions (rk, seq);
create table if not exists resources (
  rid {{rowid}},
  rk {{int}} not null,
  type text not null,
  id text not null,
  version {{int}} not null,
  deleted {{int}} not null,
  last_updated {{int}} not null,
  unique (rk, type, id)
);
create index if not exists resources_list on resources (rk, type, rid);
create index if not exists resources_all on resources (rk, rid);
create table if not exists tokens (
  rk {{int}} not null,
  type text not null,
  param text not null,
  value text not null,
  rid {{int}} not null,
  system text not null,
  primary key (rk, type, param, value, rid, system)
) {{norowid}};
create index if not exists tokens_rid on tokens (rid, param, value);
create table if not exists dates (
  rid {{int}} not null,
  param text not null,
  from_ms {{int}} not null,
  to_ms {{int}} not null,
  primary key (rid, param, from_ms, to_ms)
) {{norowid}};
create table if not exists receipts (
  rk {{int}} not null,
  seq {{int}} not null,
  client text not null,
  op text not null,
  fp text not null,
  receipt text not null,
  primary key (rk, seq)
) {{norowid}};
create unique index if not exists receipts_op on receipts (rk, client, op);
create table if not exists clients (
  id text primary key,
  name text not null,
  disabled {{int}} not null,
  created_at {{int}} not null
);
create table if not exists grants (
  id text primary key,
  rk {{int}} not null,
  client text not null,
  representative text not null,
  scope text not null,
  not_after {{int}} not null,
  revoked_at {{int}} not null,
  created_at {{int}} not null
);
create index if not exists grants_client on grants (rk, client);
create table if not exists revoked_tokens (
  jti text primary key,
  expires_at {{int}} not null
);
create table if not exists audit (
  id {{rowid}},
  at {{int}} not null,
  record_id text not null,
  client text not null,
  actor text not null,
  action text not null,
  target text not null,
  op text not null,
  outcome text not null
);
create index if not exists audit_record on audit (record_id, id);
create table if not exists moves (
  record_id text primary key,
  direction text not null,
  step text not null,
  peer text not null,
  publication text not null,
  updated_at {{int}} not null
);
create table if not exists issued_tokens (
  jti text primary key,
  record_id text not null,
  client text not null,
  actor text not null,
  grant_id text not null,
  scope text not null,
  issued_at {{int}} not null,
  expires_at {{int}} not null
);
create index if not exists issued_tokens_end on issued_tokens (expires_at);
