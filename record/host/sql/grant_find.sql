select g.id, g.scope, g.not_after, g.revoked_at, r.state, r.address
from grants g
join records r on r.rk = g.rk
where r.record_id = :record and g.client = :client and g.representative = :representative
order by g.created_at desc, g.id desc
