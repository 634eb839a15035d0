select gen, hash, host_id, claims, document, expires_at from locations
where record_id = :record
order by gen desc limit 1
