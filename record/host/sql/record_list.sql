select record_id, state, address, seq, created_at from records
where record_id > :after
order by record_id limit :limit
