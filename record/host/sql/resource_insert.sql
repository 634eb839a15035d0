insert into resources (rk, type, id, version, deleted, last_updated)
values (:rk, :type, :id, :version, :deleted, :updated)
returning rid
