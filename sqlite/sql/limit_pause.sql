-- Pauses a queue, or resumes it.
insert into holdfast_limits (kind, name, paused_at_ms, updated_at_ms)
values (:kind, :key, case when :reset then null else :now end, :now)
on conflict (kind, name) do update set paused_at_ms = excluded.paused_at_ms, updated_at_ms = excluded.updated_at_ms
