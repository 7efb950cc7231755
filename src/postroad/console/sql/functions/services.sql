-- Records the status of the services of a host.  Deletes services that are no longer in the list, and
-- those of hosts that have not reported for a day, because they will not report their end.
create or replace function console.report_services(p_host text, p_services jsonb) returns void
language sql set search_path from current as $$
  delete from console.service s
  where s.host = p_host and s.name not in (select r ->> 'name' from jsonb_array_elements(p_services) r)
     or s.told_at < clock_timestamp() - interval '1 day';
  insert into console.service (host, name, state, pid, restarts, since, error)
  select p_host, r.name, r.state, r.pid, r.restarts, r.since, r.error
  from jsonb_to_recordset(p_services) r(name text, state text, pid integer, restarts integer, since timestamptz, error text)
  on conflict (host, name) do update
  set state = excluded.state, pid = excluded.pid, restarts = excluded.restarts, since = excluded.since,
      error = excluded.error, told_at = clock_timestamp();
$$;

-- The status of all services.  If a supervisor has not reported for 20 seconds, its services count as lost;
-- after a day they are no longer listed.
create or replace function console.services()
returns table (host text, name text, state text, pid integer, restarts integer, since timestamptz, error text)
language sql stable set search_path from current as $$
  select s.host, s.name,
         case when s.state <> 'stopped' and s.told_at < clock_timestamp() - interval '20 seconds' then 'lost' else s.state end,
         s.pid, s.restarts, s.since, s.error
  from console.service s
  where s.told_at > clock_timestamp() - interval '1 day'
  order by s.host, s.name
$$;

-- Deletes the services of a host that no longer exists; returns their number.  Those of a host that still reports are kept.
create or replace function console.forget_services(p_host text) returns integer
language sql set search_path from current as $$
  with forgotten as (
    delete from console.service s
    where s.host = p_host and s.told_at < clock_timestamp() - interval '20 seconds'
    returning 1)
  select count(*)::integer from forgotten
$$;
