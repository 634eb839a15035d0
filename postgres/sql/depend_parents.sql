-- Whom a task waits or waited for. A deleted parent has no row, or one in holdfast_purged.
select d.parent_id as id, coalesce(t.name, p.name, '') as name, coalesce(t.status, p.status, '') as status,
  t.id is null as purged, d.finished, d.met, d.position
from holdfast_dependencies d
left join cairnq_tasks t on t.id = d.parent_id
left join holdfast_purged p on p.id = d.parent_id
where d.child_id = :id::text
order by d.position
