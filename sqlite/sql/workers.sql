select id as worker_id, token as key,
  json_object('host', host, 'pid', pid, 'since_ms', since_ms, 'seen_ms', seen_ms, 'locked', locked, 'state', state,
    'concurrency', concurrency, 'queues', json(queues), 'names', json(names)) as value
from holdfast_workers order by since_ms, id
