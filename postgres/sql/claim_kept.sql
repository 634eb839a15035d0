-- As claim_plan, for connections that keep their statements: one plan for all claims, since planning takes
-- longer than claiming; and because such a plan may be made while the table is empty and be used when it is
-- full, only nodes that are right for both.
select set_config('jit', 'off', true) || set_config('plan_cache_mode', 'force_generic_plan', true)
  || set_config('enable_seqscan', 'off', true) || set_config('enable_bitmapscan', 'off', true)
  || set_config('enable_hashjoin', 'off', true) || set_config('enable_mergejoin', 'off', true) as value
