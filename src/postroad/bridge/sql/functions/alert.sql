-- Raises or clears the alert about a lagging bridge, where the component alerts is installed.  In the caller's transaction.
create or replace function bridge.report_lag(p_name text, p_is_lagging boolean, p_text text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  if to_regnamespace('alerts') is null then return false; end if;
  if p_is_lagging then
    execute 'select alerts.raise($1, $2, $3, $4, $5)'
      using 'bridge/lag/' || p_name, 'bridge', 'warning', format('bridge %s lags and falls behind', p_name), p_text;
  else
    execute 'select alerts.clear($1)' using 'bridge/lag/' || p_name;
  end if;
  return true;
end $$;
