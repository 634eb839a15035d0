insert into identity (id, host) values (1, :host)
on conflict do nothing
