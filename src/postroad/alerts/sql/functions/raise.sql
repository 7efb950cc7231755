-- Report a problem, in the caller's transaction; an open key again increments its count and sends no further notice.
-- severity: info, warning, error or critical.  Takes no lock.  Errors: MA001.
create or replace function alerts.raise(p_key text, p_room text, p_severity text, p_title text, p_body text default '')
returns void
language plpgsql security definer set search_path from current as $$
begin
  perform alerts._rank(p_severity);
  if coalesce(p_key, '') = '' or coalesce(p_title, '') = '' or p_room is null or length(p_key) > 200 then
    raise exception 'an alert needs a key of at most 200 characters, a component and a title'
      using errcode = 'MA001', hint = 'A key identifies the problem, such as exchange/in_doubt/<process>.';
  end if;
  insert into alerts.report (is_raise, key, room, severity, title, body, at)
  values (true, p_key, p_room, p_severity, left(p_title, 200), left(coalesce(p_body, ''), 10000), alerts.now());
end $$;
