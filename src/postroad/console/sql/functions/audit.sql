-- Records an action that is about to run, or was refused, and returns the row's id.
create or replace function console.begin_audit(
  p_account text, p_role text, p_address text, p_action text, p_target text, p_detail jsonb, p_outcome text default 'begun')
returns bigint
language sql set search_path from current as $$
  insert into console.audit (account, role, address, action, target, detail, outcome, ended_at)
  values (p_account, p_role, p_address, p_action, p_target, coalesce(p_detail, '{}'), p_outcome,
          case when p_outcome <> 'begun' then clock_timestamp() end)
  returning id
$$;

-- Records the outcome of an action; only once.
create or replace function console.end_audit(p_id bigint, p_outcome text, p_error text default null, p_detail jsonb default null)
returns void
language sql set search_path from current as $$
  update console.audit
  set outcome = p_outcome, error = left(p_error, 2000), detail = detail || coalesce(p_detail, '{}'), ended_at = clock_timestamp()
  where id = p_id and outcome = 'begun'
$$;
