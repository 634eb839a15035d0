delete from tokens where rid = :rid
