delete from tokens where rk = :rk
