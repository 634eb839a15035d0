insert into records (record_id, state, address, seq, last_hash, created_at)
values (:record, :state, :address, 0, '', :now)
returning rk
