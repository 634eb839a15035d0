select id as worker_id, token as key,
  json_build_object('host', host, 'pid', pid, 'since_ms', since_ms, 'seen_ms', seen_ms, 'locked', locked::integer, 'state', state,
    'concurrency', concurrency, 'queues', queues, 'names', names) as value
from holdfast_workers order by since_ms, id
