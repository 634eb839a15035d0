delete from resources where rk = :rk
