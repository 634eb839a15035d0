delete from versions where rk = :rk and seq in (select seq from versions where rk = :rk order by seq limit :limit)
