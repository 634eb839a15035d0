-- Sets a limit's bounds and leaves its pause and what was spent as they are.
insert into holdfast_limits (kind, name, concurrency, rate_count, rate_period_ms, rate_burst, updated_at_ms)
values (:kind, :key, :concurrency, :rate_count, :rate_period_ms, :rate_burst, :now)
on conflict (kind, name) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
  rate_period_ms = excluded.rate_period_ms, rate_burst = excluded.rate_burst, updated_at_ms = excluded.updated_at_ms
