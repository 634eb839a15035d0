insert into clients (id, name, disabled, created_at) values (:id, :name, 0, :now)
on conflict (id) do nothing
