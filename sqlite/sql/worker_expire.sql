-- Ends the leases of a worker now; what recover.sql does with them then is the rule for all.
update cairnq_tasks set lease_until_ms = :now
where status = 'running' and lease_until_ms > :now and worker_id = :worker_id
returning id
