update records set seq = :seq, last_hash = :hash where rk = :rk
