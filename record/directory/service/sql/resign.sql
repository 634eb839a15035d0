update locations set document = :document, expires_at = :expires
where record_id = :record and gen = :gen
