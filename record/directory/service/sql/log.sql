select document from locations
where record_id = :record and gen > :after
order by gen limit :limit
