-- Tells the alerts room, where it is installed, that a bridge lags, or that it does no longer.  In the caller's transaction.
create or replace function bridge.report_lag(p_name text, p_is_lagging boolean, p_text text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  -- Rooms of one floor do not know each other; whether the other one is there is asked each time.
  if to_regnamespace('alerts') is null then return false; end if;
  if p_is_lagging then
    execute 'select alerts.raise($1, $2, $3, $4, $5)'
      using 'bridge/lag/' || p_name, 'bridge', 'warning', format('bridge %s lags and falls behind', p_name), p_text;
  else
    execute 'select alerts.clear($1)' using 'bridge/lag/' || p_name;
  end if;
  return true;
end $$;
