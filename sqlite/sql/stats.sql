select queue, status, count(*) as count from cairnq_tasks
where 1 = 1
  and queue = :queue --? queue
group by queue, status
