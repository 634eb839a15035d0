select r.rid, r.type, r.id, r.version, r.last_updated, v.content
from resources r
join versions v on v.rk = r.rk and v.type = r.type and v.id = r.id and v.version = r.version
where r.rk = :rk and r.rid > :after and r.deleted = 0
order by r.rid limit :limit
