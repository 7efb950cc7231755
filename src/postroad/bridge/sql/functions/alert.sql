-- Raises or clears the alert about a lagging bridge.  In the caller's transaction.
create or replace function bridge.report_lag(p_name text, p_is_lagging boolean, p_text text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  if p_is_lagging then
    perform alerts.raise('bridge/lag/' || p_name, 'bridge', 'warning', format('bridge %s lags and falls behind', p_name), p_text);
  else
    perform alerts.clear('bridge/lag/' || p_name);
  end if;
  return true;
end $$;
