insert into receipts (rk, seq, client, op, fp, receipt)
values (:rk, :seq, :client, :op, :fp, :receipt)
