insert into tokens (rk, type, param, value, rid, system)
values (:rk, :type, :param, :value, :rid, :system)
