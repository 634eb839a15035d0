select g.client, g.representative, g.scope, g.not_after, g.revoked_at,
  r.rk, r.record_id, r.state, r.address, r.seq, r.last_hash,
  coalesce(c.disabled, 1), (select count(*) from revoked_tokens t where t.jti = :jti)
from grants g
join records r on r.rk = g.rk
join clients c on c.id = g.client
where g.id = :grant
{{lockrecord}} --? lock
