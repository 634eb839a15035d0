update holdfast_schedules set paused_at_ms = case when :reset::boolean then null else coalesce(paused_at_ms, {{now}}) end,
  next_at_ms = :next_at_ms::bigint, updated_at_ms = {{now}}
where name = :name::text
returning name
