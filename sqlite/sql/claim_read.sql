-- The tasks about to be taken.
select rowid, {{columns}} from cairnq_tasks
where rowid in (select value from json_each(:hints)) and status = 'queued'
