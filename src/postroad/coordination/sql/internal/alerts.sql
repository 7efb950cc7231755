-- Raises an alert, if the component alerts is installed in this database.
create or replace function coordination._raise_alert(p_key text, p_severity text, p_title text, p_text text) returns void
language plpgsql set search_path from current as $$
begin
  if to_regnamespace('alerts') is not null then
    execute 'select alerts.raise($1, ''coordination'', $2, $3, $4)'
    using p_key, p_severity, p_title, p_text;
  end if;
end $$;

create or replace function coordination._clear_alert(p_key text) returns void
language plpgsql set search_path from current as $$
begin
  if to_regnamespace('alerts') is not null then
    execute 'select alerts.clear($1)' using p_key;
  end if;
end $$;

-- Several Readers may raise alerts in the same database.
create or replace function coordination._parked_key(p_event bigint) returns text
language sql stable set search_path from current as $$
  select format('coordination.parked.%s.%s', (select n.name from coordination.node n where n.role = 'reader'), p_event)
$$;
