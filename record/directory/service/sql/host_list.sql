select id, name, admitted_at from hosts order by admitted_at, id
