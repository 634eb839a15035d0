select name from hosts where id = :id
