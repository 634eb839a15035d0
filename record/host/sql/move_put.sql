insert into moves (record_id, direction, step, peer, publication, updated_at)
values (:record, :direction, :step, :peer, :publication, :now)
on conflict (record_id) do update set direction = excluded.direction, step = excluded.step,
  peer = excluded.peer, publication = excluded.publication, updated_at = excluded.updated_at
