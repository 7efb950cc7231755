-- Report that a problem is solved, in the caller's transaction; idempotent; no-op if the key is not open.
create or replace function alerts.clear(p_key text) returns void
language plpgsql security definer set search_path from current as $$
begin
  insert into alerts.report (is_raise, key, at) values (false, p_key, alerts.now());
end $$;
