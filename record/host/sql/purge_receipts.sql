delete from receipts where rk = :rk and seq in (select seq from receipts where rk = :rk order by seq limit :limit)
