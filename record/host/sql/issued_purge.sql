delete from issued_tokens where expires_at <= :now
