-- Extends the leases that the worker still holds, of all the tasks named. The plus keeps the
-- planner to the ids, whatever its statistics say.
update cairnq_tasks set lease_until_ms = :now + :lease_ms, updated_at_ms = :now
where id in (select value from json_each(:ids))
  and +status = 'running' and worker_id = :worker_id and lease_until_ms > :now
returning id, lease_until_ms, cancel_requested_at_ms
