-- Pauses a queue, or resumes it. A second pause leaves the time of the first.
insert into holdfast_limits (kind, name, paused_at_ms, updated_at_ms)
values (:kind, :key, case when :reset then null else :now end, :now)
on conflict (kind, name) do update set updated_at_ms = excluded.updated_at_ms,
  paused_at_ms = case when excluded.paused_at_ms is not null then coalesce(holdfast_limits.paused_at_ms, excluded.paused_at_ms) end
