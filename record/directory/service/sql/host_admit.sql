insert into hosts (id, name, admitted_at) values (:id, :name, :now)
on conflict (id) do update set name = excluded.name
