-- Writes down what somebody is about to do, or was refused, and returns the row's id.
create or replace function console.begin_audit(
  p_account text, p_role text, p_address text, p_action text, p_target text, p_detail jsonb, p_outcome text default 'begun')
returns bigint
language sql set search_path from current as $$
  insert into console.audit (account, role, address, action, target, detail, outcome, ended_at)
  values (p_account, p_role, p_address, p_action, p_target, coalesce(p_detail, '{}'), p_outcome,
          case when p_outcome <> 'begun' then clock_timestamp() end)
  returning id
$$;

-- Writes down how it ended; only once.
create or replace function console.end_audit(p_id bigint, p_outcome text, p_error text default null, p_detail jsonb default null)
returns void
language sql set search_path from current as $$
  update console.audit
  set outcome = p_outcome, error = left(p_error, 2000), detail = detail || coalesce(p_detail, '{}'), ended_at = clock_timestamp()
  where id = p_id and outcome = 'begun'
$$;

-- A page, the latest first: those before an id, and with a text in any of their columns.  A search reads a stretch
-- of 20,000 rows; audit_stretch says where the next one begins.
create or replace function console.audit_page(
  p_before bigint default null, p_limit integer default 50, p_search text default null)
returns setof console.audit
language sql stable set search_path from current as $$
  select r.* from (
    select a.* from console.audit a
    where p_before is null or a.id < p_before
    order by a.id desc
    limit case when p_search is null then p_limit else 20000 end) r
  where p_search is null
     or position(lower(p_search) in lower(concat_ws(' ', r.account, r.action, r.target, r.outcome, r.error, r.detail::text))) > 0
  order by r.id desc limit p_limit
$$;

-- The last id of the stretch that begins before an id; null when there is nothing behind it.
create or replace function console.audit_stretch(p_before bigint default null) returns bigint
language sql stable set search_path from current as $$
  select s.id from (
    select a.id from console.audit a
    where p_before is null or a.id < p_before
    order by a.id desc offset 19999 limit 1) s
  where exists (select from console.audit b where b.id < s.id)
$$;
