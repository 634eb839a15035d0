update records set state = :state where rk = :rk
