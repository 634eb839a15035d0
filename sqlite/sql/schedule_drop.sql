delete from holdfast_schedules where name = :name returning name
