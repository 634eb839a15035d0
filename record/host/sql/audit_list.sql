select id, at, record_id, client, actor, action, target, op, outcome from audit
where record_id = :record and id > :after
order by id limit :limit
