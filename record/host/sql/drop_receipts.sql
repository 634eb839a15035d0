delete from receipts where rk = :rk
