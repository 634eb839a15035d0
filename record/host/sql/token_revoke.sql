insert into revoked_tokens (jti, expires_at) values (:jti, :expires)
on conflict do nothing
