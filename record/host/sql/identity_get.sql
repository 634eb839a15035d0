select host from identity where id = 1
