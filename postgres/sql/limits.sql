-- All shared limits.
select kind, name as key, concurrency, rate_count, rate_period_ms, rate_burst, tat_us, paused_at_ms from holdfast_limits
order by kind desc, name
