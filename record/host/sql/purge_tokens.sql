delete from tokens where rid in (select rid from resources where rk = :rk order by rid limit :limit)
