-- For the rest of the transaction: the planner thinks that a claim walks through many more priorities than
-- there are, and compiling it would take longer than a thousand claims.
select set_config('jit', 'off', true) as value
