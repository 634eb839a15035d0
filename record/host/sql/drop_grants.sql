delete from grants where rk = :rk
