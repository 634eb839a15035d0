select queue, status, count(*) as count from cairnq_tasks
where true
  and queue = :queue::text --? queue
group by queue, status
