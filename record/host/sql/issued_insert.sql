insert into issued_tokens (jti, record_id, client, actor, grant_id, scope, issued_at, expires_at)
values (:jti, :record, :client, :actor, :grant, :scope, :issued, :expires)
