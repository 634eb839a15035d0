delete from records where rk = :rk
