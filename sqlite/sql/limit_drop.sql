-- Rows without any bound say nothing.
delete from holdfast_limits
where kind = :kind and name = :key and concurrency = 0 and rate_count = 0 and paused_at_ms is null
