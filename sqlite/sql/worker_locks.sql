select id as worker_id, token as key, locked as count, until_ms as lease_until_ms from holdfast_workers
