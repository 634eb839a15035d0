-- A schedule as it is declared now. What has happened to it stays.
insert into holdfast_schedules (name, spec, zone, task, queue, payload, options, missed, bound, grace_ms, anchor_ms, next_at_ms,
  digest, created_at_ms, updated_at_ms)
values (:name, :spec, :zone, :task, :queue, :payload, :options, :missed, :bound, :grace_ms, :anchor_ms, :next_at_ms,
  :digest, :now, :now)
on conflict (name) do update set spec = excluded.spec, zone = excluded.zone, task = excluded.task, queue = excluded.queue,
  payload = excluded.payload, options = excluded.options, missed = excluded.missed, bound = excluded.bound,
  grace_ms = excluded.grace_ms, anchor_ms = excluded.anchor_ms, next_at_ms = excluded.next_at_ms,
  digest = excluded.digest, updated_at_ms = excluded.updated_at_ms
