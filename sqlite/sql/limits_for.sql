-- The shared limits that concern a claim; :reset asks for those of every name.
select kind, name as key, concurrency, rate_count, rate_period_ms, rate_burst, tat_us, paused_at_ms from holdfast_limits
where (kind = 'queue' and name in (select value from json_each(:queues)))
  or (kind = 'name' and (:reset or name in (select value from json_each(:names))))
