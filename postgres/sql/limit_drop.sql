-- Rows without any bound say nothing.
delete from holdfast_limits
where kind = :kind::text and name = :key::text and concurrency = 0 and rate_count = 0 and paused_at_ms is null
