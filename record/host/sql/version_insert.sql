insert into versions (rk, type, id, version, seq, deleted, last_updated, content)
values (:rk, :type, :id, :version, :seq, :deleted, :updated, :content)
