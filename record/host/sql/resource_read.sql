select r.rid, r.version, r.deleted, r.last_updated, v.content
from resources r
join versions v on v.rk = r.rk and v.type = r.type and v.id = r.id and v.version = r.version
where r.rk = :rk and r.type = :type and r.id = :id
