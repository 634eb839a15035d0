delete from moves where record_id = :record
