delete from versions where rk = :rk
