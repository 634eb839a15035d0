-- The key's lock, until the transaction ends.
select count(pg_advisory_xact_lock(hashtextextended(:key::text, 0))::text) as count
