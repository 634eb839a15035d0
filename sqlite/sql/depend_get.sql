select task_id as id, run_at_ms, keep, pending as count, released_at_ms from holdfast_waits where task_id = :id
