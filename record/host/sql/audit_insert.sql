insert into audit (at, record_id, client, actor, action, target, op, outcome)
values (:at, :record, :client, :actor, :action, :target, :op, :outcome)
