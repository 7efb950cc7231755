-- Report that it is well again.  In the caller's transaction; repeatable; nothing happens if it was not raised.
create or replace function alerts.clear(p_key text) returns void
language plpgsql security definer set search_path from current as $$
begin
  insert into alerts.report (is_raise, key, at) values (false, p_key, alerts.now());
end $$;
