-- As depend_parents, with what they answered.
select d.parent_id as id, coalesce(t.name, p.name, '') as name, coalesce(t.status, p.status, '') as status,
  t.id is null as purged, d.finished, d.met, d.position,
  case when t.id is null then p.result else t.result end as result,
  case when t.id is null then p.error else t.error end as error
from holdfast_dependencies d
left join cairnq_tasks t on t.id = d.parent_id
left join holdfast_purged p on p.id = d.parent_id
where d.child_id = :id::text
order by d.position
