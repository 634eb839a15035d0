-- Sets a limit's bounds and leaves its pause and what was spent as they are.
with clock as materialized (select {{now}} as now)
insert into holdfast_limits (kind, name, concurrency, rate_count, rate_period_ms, rate_burst, updated_at_ms)
select :kind::text, :key::text, :concurrency::integer, :rate_count::integer, :rate_period_ms::bigint, :rate_burst::integer, clock.now from clock
on conflict (kind, name) do update set concurrency = excluded.concurrency, rate_count = excluded.rate_count,
  rate_period_ms = excluded.rate_period_ms, rate_burst = excluded.rate_burst, updated_at_ms = excluded.updated_at_ms
