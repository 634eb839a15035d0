  -- Part of triggers: holdfast_settling holds the task that has ended.
  insert or ignore into holdfast_settling (id, cause, status, at_ms) select id, cause, status, at_ms from holdfast_doomed;
  update cairnq_tasks set status = 'canceled',
    completed_at_ms = (select max(at_ms) from holdfast_settling),
    updated_at_ms = (select max(at_ms) from holdfast_settling),
    error = (select json_object(
        'type', 'DependencyError',
        'code', 'dependency_' || c.status,
        'message', c.id || coalesce(' (' || coalesce(n.name, p.name) || ')', '') || ', which this task waited for, '
          || case c.status when 'failed' then 'failed' when 'canceled' then 'was canceled' else 'was deleted before it had succeeded' end,
        'retryable', json('false'),
        'details', json_object('task_id', c.id, 'name', coalesce(n.name, p.name), 'status', c.status))
      from holdfast_settling s
      join holdfast_settling c on c.id = s.cause
      left join cairnq_tasks n on n.id = c.id
      left join holdfast_purged p on p.id = c.id
      where s.id = cairnq_tasks.id)
    where status = 'queued' and id in (select id from holdfast_settling where cause is not null);
  update holdfast_waits set pending = pending - 1
    where released_at_ms is null and task_id in (
      select d.child_id from holdfast_settling s cross join holdfast_dependencies d
      where s.cause is null and d.parent_id = s.id and d.met = 0 and (d.finished = 1 or s.status = 'succeeded'));
  update holdfast_waits set pending = pending - (
      select count(*) from holdfast_dependencies d
      where d.child_id = holdfast_waits.task_id and d.met = 0 and d.finished = 1
        and d.parent_id in (select id from holdfast_settling where cause is not null))
    where released_at_ms is null and task_id in (
      select d.child_id from holdfast_settling s cross join holdfast_dependencies d
      where s.cause is not null and d.parent_id = s.id and d.met = 0 and d.finished = 1);
  update cairnq_tasks set
    run_at_ms = max((select run_at_ms from holdfast_waits where task_id = cairnq_tasks.id), (select max(at_ms) from holdfast_settling)),
    updated_at_ms = (select max(at_ms) from holdfast_settling)
    where status = 'queued' and id in (
      select w.task_id from holdfast_settling s cross join holdfast_dependencies d cross join holdfast_waits w
      where d.parent_id = s.id and d.met = 0 and w.task_id = d.child_id and w.pending = 0 and w.released_at_ms is null);
  update holdfast_waits set released_at_ms = (select max(at_ms) from holdfast_settling)
    where released_at_ms is null and pending = 0
      and task_id in (select d.child_id from holdfast_settling s cross join holdfast_dependencies d where d.parent_id = s.id and d.met = 0)
      and exists (select 1 from cairnq_tasks t where t.id = task_id and t.status = 'queued');
  update holdfast_dependencies set met = 1
    where met = 0 and parent_id in (select id from holdfast_settling)
      and (finished = 1 or parent_id in (select id from holdfast_settling where status = 'succeeded'));
  delete from holdfast_settling;
