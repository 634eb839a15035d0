delete from revoked_tokens where expires_at < :now
