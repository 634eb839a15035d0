select g.id, r.record_id, g.client, g.representative, g.scope, g.not_after, g.revoked_at, g.created_at
from grants g
join records r on r.rk = g.rk
where r.record_id = :record
order by g.created_at, g.id
