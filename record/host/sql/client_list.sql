select id, name, disabled, created_at from clients order by created_at, id
