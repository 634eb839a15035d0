select jti from revoked_tokens where jti = :jti
