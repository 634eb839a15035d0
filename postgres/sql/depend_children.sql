-- Who waits or waited for a task.
select t.id, t.name, t.status, d.finished, d.met
from holdfast_dependencies d join cairnq_tasks t on t.id = d.child_id
where d.parent_id = :id::text
order by t.id limit :limit::bigint
