-- On to the next tick, unless somebody has moved it already.
update holdfast_schedules set next_at_ms = :next_at_ms, last_at_ms = coalesce(:last_at_ms, last_at_ms),
  last_task = coalesce(:last_task, last_task)
where name = :name and next_at_ms = :before_ms and paused_at_ms is null
returning name
