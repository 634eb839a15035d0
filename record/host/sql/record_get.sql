select rk, state, address, seq, last_hash, created_at from records
where record_id = :record
