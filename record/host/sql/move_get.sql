select direction, step, peer, publication from moves where record_id = :record
