select r.state from grants g
join records r on r.rk = g.rk
where g.id = :id
