-- Pauses a queue, or resumes it. A second pause leaves the time of the first.
with clock as materialized (select {{now}} as now)
insert into holdfast_limits (kind, name, paused_at_ms, updated_at_ms)
select :kind::text, :key::text, case when :reset::boolean then null else clock.now end, clock.now from clock
on conflict (kind, name) do update set updated_at_ms = excluded.updated_at_ms,
  paused_at_ms = case when excluded.paused_at_ms is not null then coalesce(holdfast_limits.paused_at_ms, excluded.paused_at_ms) end
