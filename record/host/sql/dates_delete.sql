delete from dates where rid = :rid
