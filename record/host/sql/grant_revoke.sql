update grants set revoked_at = :now where id = :id and revoked_at = 0
