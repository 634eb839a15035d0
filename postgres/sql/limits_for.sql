-- The shared limits that concern a claim, locked until it ends; :reset asks for those of every name.
select kind, name as key, concurrency, rate_count, rate_period_ms, rate_burst, tat_us, paused_at_ms from holdfast_limits
where (kind = 'queue' and name = any(:queues::text[]))
  or (kind = 'name' and (:reset::boolean or name = any(:names::text[])))
order by kind, name
for update
