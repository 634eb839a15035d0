update resources set version = :version, deleted = :deleted, last_updated = :updated
where rid = :rid
