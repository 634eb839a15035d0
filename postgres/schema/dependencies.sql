-- Tasks that wait for others. A program that knows nothing of these tables sees a waiting task as one
-- that is due in the year 9999.
create table if not exists holdfast_waits (
  task_id text primary key,
  run_at_ms bigint not null,   -- not to start before, once released
  keep boolean not null,       -- a parent's failure does not cancel it
  pending integer not null,    -- how many of its parents it still waits for
  released_at_ms bigint
);
create table if not exists holdfast_dependencies (
  child_id text not null,
  parent_id text not null,
  finished boolean not null,   -- any end of the parent will do
  met boolean not null,
  position integer not null,   -- as the submitter named them
  primary key (child_id, parent_id)
);
create index if not exists holdfast_dependencies_parent_idx on holdfast_dependencies (parent_id);
-- What is left of parents that were deleted before their children.
create table if not exists holdfast_purged (
  id text primary key,
  name text not null,
  status text not null,
  result jsonb,
  error jsonb
);
-- What a transaction has done to tasks that others wait for. Its rows are settled, all at once, when
-- it commits, so nobody ever sees them.
create unlogged table if not exists holdfast_settling (
  id text not null,
  status text not null,  -- also: purged; gone, of which there is nothing to do but to clear up
  name text not null,
  at_ms bigint not null,
  child_id text not null default '',  -- the only child that it is about, or ''
  tx bigint not null default txid_current(),
  primary key (tx, id, child_id)
);

-- Who is canceled with them, and because of whom; likewise never seen.
create unlogged table if not exists holdfast_cascade (
  id text not null,
  cause text not null,
  status text not null,
  name text not null,
  tx bigint not null default txid_current(),
  primary key (tx, id)
);

-- Two transactions meet at a child: the one that ends a parent and one that ends another, cancels,
-- retries or deletes the child. Whoever changes what is said here about a child holds the lock of its
-- task row, and takes such locks in the order of ids.

-- A parent has ended, or goes again. Every task that ends comes by here, so the usual case is one look
-- at one index, and the tables are named with their schema: to set a search_path would cost as much.
do $do$
begin
  execute format($function$
    create or replace function holdfast_depend_changed() returns trigger language plpgsql as $$
    begin
      if exists (select from %1$I.holdfast_dependencies where parent_id = new.id) then
        -- Who was released does not care, and what is being settled is known.
        if current_setting('holdfast.settling', true) is distinct from 'on' and exists (
            select from %1$I.holdfast_dependencies d
            where d.parent_id = new.id and (select w.released_at_ms is null from %1$I.holdfast_waits w where w.task_id = d.child_id)) then
          insert into %1$I.holdfast_settling (id, status, name, at_ms)
          values (new.id, new.status, new.name, coalesce(new.completed_at_ms, new.updated_at_ms))
          on conflict (tx, id, child_id) do update set status = excluded.status, at_ms = excluded.at_ms;
        end if;
      end if;
      return null;
    end
    $$ $function$, current_schema());
end
$do$;

-- A child is retried: it goes on waiting, if there is somebody to wait for.
create or replace function holdfast_depend_retried() returns trigger language plpgsql set search_path from current as $$
declare
  still integer;
begin
  update holdfast_waits set run_at_ms = new.updated_at_ms, released_at_ms = case when pending = 0 then new.updated_at_ms end
  where task_id = new.id and released_at_ms is null
  returning pending into still;
  if still > 0 then
    new.run_at_ms := 253370764800000;
  end if;
  return new;
end
$$;

-- Tasks were deleted. What their children may ask about them is kept until those are deleted too.
create or replace function holdfast_depend_deleted() returns trigger language plpgsql set search_path from current as $$
begin
  insert into holdfast_purged (id, name, status, result, error)
  select id, name, status, result, error from gone
  where exists (select from holdfast_dependencies d where d.parent_id = gone.id)
  on conflict (id) do nothing;
  if found then
    insert into holdfast_settling (id, status, name, at_ms)
    select id, 'purged', name, floor(extract(epoch from clock_timestamp()) * 1000)::bigint from gone
    where exists (select from holdfast_dependencies d where d.parent_id = gone.id)
    on conflict (tx, id, child_id) do update set status = 'purged';
  end if;
  with lost as (
    delete from holdfast_waits w using gone where w.task_id = gone.id returning w.task_id),
  parents as (
    delete from holdfast_dependencies d using lost where d.child_id = lost.task_id returning d.parent_id)
  insert into holdfast_settling (id, status, name, at_ms)
  select distinct parent_id, 'gone', '', 0 from parents
  on conflict (tx, id, child_id) do nothing;
  return null;
end
$$;

-- A dependency was recorded on what was known then. The parent may have ended meanwhile, without
-- seeing the dependency. From here to the commit it does not.
create or replace function holdfast_depend_check() returns trigger language plpgsql set search_path from current as $$
declare
  parent record;
begin
  select t.status, t.name, coalesce(t.completed_at_ms, t.updated_at_ms) as at_ms into parent
  from cairnq_tasks t where t.id = new.parent_id for share;
  if not found then
    insert into holdfast_settling (id, status, name, at_ms, child_id)
    values (new.parent_id, 'purged', '', floor(extract(epoch from clock_timestamp()) * 1000)::bigint, new.child_id)
    on conflict (tx, id, child_id) do nothing;
  elsif parent.status in ('succeeded', 'failed', 'canceled') then
    insert into holdfast_settling (id, status, name, at_ms, child_id)
    values (new.parent_id, parent.status, parent.name, parent.at_ms, new.child_id)
    on conflict (tx, id, child_id) do nothing;
  end if;
  return null;
end
$$;

-- All that the transaction has done, before it commits. The first row does the work of all.
create or replace function holdfast_settle() returns trigger language plpgsql set search_path from current
  -- A few rows of large tables are wanted, whatever the statistics say.
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  ended holdfast_settling[];
  remains text[];
  parents text[];   -- whose children come next
  children text[];
  depth integer := 0;
  at bigint;
begin
  with mine as (delete from holdfast_settling s where s.tx = txid_current() returning s)
  select array_agg(s) filter (where (s).status <> 'gone'), array_agg((s).id) filter (where (s).status in ('gone', 'purged')), max((s).at_ms)
  into ended, remains, at from mine;
  if ended is not null then
    -- Locks first, in one order, as far as it can be foreseen who is concerned.
    select array_agg(e.id) into parents from unnest(ended) e;
    while parents is not null and depth < 8 loop
      select array_agg(distinct d.child_id) into parents
      from holdfast_dependencies d join holdfast_waits w on w.task_id = d.child_id
      where d.parent_id = any(parents) and w.released_at_ms is null;
      children := children || parents;
      depth := depth + 1;
    end loop;
    perform from cairnq_tasks where id = any(children) order by id for no key update;

    -- Parents that go again are waited for again.
    with undone as (
      update holdfast_dependencies d set met = false
      from unnest(ended) e, holdfast_waits w
      where d.parent_id = e.id and e.status = 'queued' and d.met and w.task_id = d.child_id and w.released_at_ms is null
      returning d.child_id)
    update holdfast_waits w set pending = pending + u.n
    from (select child_id, count(*) as n from undone group by child_id) u
    where w.task_id = u.child_id;

    -- Parents that ended as they should.
    with done as (
      update holdfast_dependencies d set met = true
      from unnest(ended) e, holdfast_waits w
      where d.parent_id = e.id and e.child_id in ('', d.child_id) and e.status <> 'queued' and not d.met and (d.finished or e.status = 'succeeded')
        and w.task_id = d.child_id and w.released_at_ms is null
      returning d.child_id)
    update holdfast_waits w set pending = pending - u.n
    from (select child_id, count(*) as n from done group by child_id) u
    where w.task_id = u.child_id;

    -- Who waits in vain, and who waits for those, and so on.
    with vain as (
      insert into holdfast_cascade (id, cause, status, name)
      select distinct on (d.child_id) d.child_id, e.id, e.status, e.name
      from unnest(ended) e
      join holdfast_dependencies d on d.parent_id = e.id and e.child_id in ('', d.child_id) and not d.met
      join holdfast_waits w on w.task_id = d.child_id and w.released_at_ms is null
      join cairnq_tasks t on t.id = d.child_id and t.status = 'queued'
      where e.status in ('failed', 'canceled', 'purged') and (not w.keep or e.status = 'purged')
      order by d.child_id, d.position
      returning id)
    select array_agg(id) into parents from vain;
    while parents is not null loop
      perform from cairnq_tasks where id in (
        select d.child_id from holdfast_dependencies d join holdfast_waits w on w.task_id = d.child_id
        where d.parent_id = any(parents) and w.released_at_ms is null)
      order by id for no key update;
      with vain as (
        insert into holdfast_cascade (id, cause, status, name)
        select distinct on (d.child_id) d.child_id, p.id, 'canceled', p.name
        from holdfast_dependencies d
        join holdfast_waits w on w.task_id = d.child_id and w.released_at_ms is null and not w.keep
        join cairnq_tasks t on t.id = d.child_id and t.status = 'queued'
        join cairnq_tasks p on p.id = d.parent_id
        where d.parent_id = any(parents) and not d.met and not d.finished
        order by d.child_id, d.position
        on conflict do nothing
        returning id)
      select array_agg(id) into parents from vain;
    end loop;
    if exists (select from holdfast_cascade where tx = txid_current()) then
      -- What is canceled here need not be told to us.
      perform set_config('holdfast.settling', 'on', true);
      update cairnq_tasks t set status = 'canceled', completed_at_ms = at, updated_at_ms = at, error = jsonb_build_object(
          'type', 'DependencyError',
          'code', 'dependency_' || c.status,
          'message', c.cause || case when c.name <> '' then ' (' || c.name || ')' else '' end || ', which this task waited for, '
            || case c.status when 'failed' then 'failed' when 'canceled' then 'was canceled' else 'was deleted before it had succeeded' end,
          'retryable', false,
          'details', jsonb_build_object('task_id', c.cause, 'name', c.name, 'status', c.status))
      from holdfast_cascade c where c.tx = txid_current() and t.id = c.id;
      perform set_config('holdfast.settling', '', true);
      with done as (
        update holdfast_dependencies d set met = true
        from holdfast_cascade c
        where c.tx = txid_current() and d.parent_id = c.id and not d.met and d.finished
        returning d.child_id)
      update holdfast_waits w set pending = pending - u.n
      from (select child_id, count(*) as n from done group by child_id) u
      where w.task_id = u.child_id and w.released_at_ms is null;
    end if;

    -- Who was canceled because of a deleted parent, and is retried, does not wait for what can never happen.
    with never as (
      update holdfast_dependencies d set met = true
      from unnest(ended) e, holdfast_waits w
      where d.parent_id = e.id and e.child_id in ('', d.child_id) and e.status = 'purged' and not d.met and w.task_id = d.child_id and w.released_at_ms is null
      returning d.child_id)
    update holdfast_waits w set pending = pending - u.n
    from (select child_id, count(*) as n from never group by child_id) u
    where w.task_id = u.child_id;

    -- Who waits no longer.
    with free as (
      update cairnq_tasks t set run_at_ms = greatest(w.run_at_ms, at), updated_at_ms = at
      from holdfast_waits w
      where w.pending = 0 and w.released_at_ms is null and t.id = w.task_id and t.status = 'queued' and w.task_id in (
        select d.child_id from unnest(ended) e join holdfast_dependencies d on d.parent_id = e.id
        union
        select d.child_id from holdfast_cascade c join holdfast_dependencies d on d.parent_id = c.id where c.tx = txid_current())
      returning t.id, t.queue),
    released as (
      update holdfast_waits w set released_at_ms = at from free where w.task_id = free.id)
    select array_agg(distinct queue) into children from free;
    perform pg_notify('cairnq_queued', q) from unnest(children) q;
    delete from holdfast_cascade where tx = txid_current();
  end if;
  if remains is not null then
    -- One after the other, so that the last one finds that it is. The numbers only have to be the same
    -- everywhere.
    perform pg_advisory_xact_lock(1701996404, 5);
    delete from holdfast_purged p where p.id = any(remains) and not exists (select from holdfast_dependencies d where d.parent_id = p.id);
  end if;
  return null;
end
$$;

drop trigger if exists holdfast_depend_changed on cairnq_tasks;
create trigger holdfast_depend_changed after update of status on cairnq_tasks for each row
  when (new.status in ('succeeded', 'failed', 'canceled') and old.status in ('queued', 'running')
    or new.status = 'queued' and old.status in ('succeeded', 'failed', 'canceled'))
  execute function holdfast_depend_changed();
drop trigger if exists holdfast_depend_retried on cairnq_tasks;
create trigger holdfast_depend_retried before update of status on cairnq_tasks for each row
  when (new.status = 'queued' and old.status in ('succeeded', 'failed', 'canceled'))
  execute function holdfast_depend_retried();
drop trigger if exists holdfast_depend_deleted on cairnq_tasks;
create trigger holdfast_depend_deleted after delete on cairnq_tasks referencing old table as gone
  for each statement execute function holdfast_depend_deleted();
drop trigger if exists holdfast_depend_check on holdfast_dependencies;
create constraint trigger holdfast_depend_check after insert on holdfast_dependencies
  deferrable initially deferred for each row when (not new.met)
  execute function holdfast_depend_check();
drop trigger if exists holdfast_settle on holdfast_settling;
create constraint trigger holdfast_settle after insert or update on holdfast_settling
  deferrable initially deferred for each row
  execute function holdfast_settle();
