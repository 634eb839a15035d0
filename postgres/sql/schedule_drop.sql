delete from holdfast_schedules where name = :name::text returning name
