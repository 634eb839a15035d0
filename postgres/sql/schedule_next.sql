-- When the first tick is due; null if none is left.
select min(next_at_ms) as next_at_ms, {{now}} as now from holdfast_schedules
where next_at_ms is not null and paused_at_ms is null
  and name <> all (:names::text[])
