insert into locations (record_id, gen, hash, host_id, claims, document, expires_at)
values (:record, :gen, :hash, :host, :claims, :document, :expires)
