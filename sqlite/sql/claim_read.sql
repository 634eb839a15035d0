-- The tasks about to be taken. The plus keeps the planner to the row numbers, whatever its statistics say.
select rowid, {{columns}} from cairnq_tasks
where rowid in (select value from json_each(:hints)) and +status = 'queued'
