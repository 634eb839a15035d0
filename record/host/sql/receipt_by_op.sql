select fp, receipt from receipts
where rk = :rk and client = :client and op = :op
