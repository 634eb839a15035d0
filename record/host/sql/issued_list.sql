select i.jti, i.record_id, i.client, i.actor, i.grant_id, i.scope, i.issued_at, i.expires_at,
  (select count(*) from revoked_tokens t where t.jti = i.jti)
from issued_tokens i
where i.jti > :after and i.expires_at > :now
order by i.jti
limit :limit
