select deleted, last_updated, content from versions
where rk = :rk and type = :type and id = :id and version = :version
