select distinct c.id, c.name from clients c
join grants g on g.client = c.id
where g.rk = :rk and c.disabled = 0
order by c.id
