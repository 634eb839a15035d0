update holdfast_waits set released_at_ms = {{now}} where task_id = :id::text and released_at_ms is null
