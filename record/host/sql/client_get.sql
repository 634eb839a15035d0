select name, disabled from clients where id = :id
