update holdfast_schedules set paused_at_ms = case when :reset then null else coalesce(paused_at_ms, :now) end,
  next_at_ms = :next_at_ms, updated_at_ms = :now
where name = :name
returning name
