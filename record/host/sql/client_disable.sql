update clients set disabled = 1 where id = :id
