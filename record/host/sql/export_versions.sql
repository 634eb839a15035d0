select v.type, v.id, v.version, v.seq, v.deleted, v.last_updated, v.content, r.client, r.op, r.fp, r.receipt
from versions v
join receipts r on r.rk = v.rk and r.seq = v.seq
where v.rk = :rk and v.seq > :after
order by v.seq limit :limit
