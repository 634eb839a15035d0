select rid, version, deleted, last_updated from resources
where rk = :rk and type = :type and id = :id
