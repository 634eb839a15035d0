insert into dates (rid, param, from_ms, to_ms)
values (:rid, :param, :from, :to)
on conflict do nothing
