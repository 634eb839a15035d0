delete from hosts where id = :id
