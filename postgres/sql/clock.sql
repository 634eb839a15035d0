-- The server's time.
select {{now}} as now
