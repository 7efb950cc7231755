-- Records that a server could not be used: its files wait with backoff, without losing an attempt.
-- host_key_changed stops it until an operator decides.  Returns the number of failures in a row.
create or replace function intake.server_failed(
  p_server_id integer, p_status text, p_problem text, p_seen_host_key text default null) returns integer
language sql set search_path from current as $$
  with failed as (
    update intake.sftp_servers s
    set status = p_status, problem = p_problem, failures = s.failures + 1, updated_at = intake.now(),
        retry_at = intake.now() + intake._backoff(s.failures + 1), seen_host_key = coalesce(p_seen_host_key, s.seen_host_key)
    where s.id = p_server_id and s.status <> 'host_key_changed' returning s.failures)
  select coalesce((select f.failures from failed f), 0);
$$;

-- Records that a server works.  Returns whether it had failed before.
create or replace function intake.server_works(p_server_id integer) returns boolean
language plpgsql set search_path from current as $$
declare
  v_had_failed constant boolean := exists (select from intake.sftp_servers s where s.id = p_server_id and s.failures > 0);
begin
  update intake.sftp_servers s
  set status = 'ok', problem = null, failures = 0, retry_at = null, updated_at = intake.now()
  where s.id = p_server_id and s.status <> 'host_key_changed' and (s.failures > 0 or s.status = 'new');
  return v_had_failed and found;
end $$;

-- Pins a key on first use.  Returns false when one is pinned.
create or replace function intake.pin_host_key(p_server_id integer, p_host_key text) returns boolean
language plpgsql set search_path from current as $$
begin
  update intake.sftp_servers s set host_key = p_host_key, updated_at = intake.now()
  where s.id = p_server_id and s.host_key is null;
  return found;
end $$;

-- Records that a store could not be used.  Returns the number of failures in a row.
create or replace function intake.store_failed(p_store text, p_problem text) returns integer
language sql set search_path from current as $$
  insert into intake.store_state as t (store, failures, problem, retry_at)
  values (p_store, 1, p_problem, intake.now() + intake._backoff(1))
  on conflict (store) do update
  set failures = t.failures + 1, problem = excluded.problem,
      retry_at = intake.now() + least(intake._backoff(t.failures + 1), interval '60 seconds'), updated_at = intake.now()
  returning failures;
$$;

-- Records that a store works.  Returns whether it had failed before.
create or replace function intake.store_works(p_store text) returns boolean
language plpgsql set search_path from current as $$
begin
  update intake.store_state t set failures = 0, problem = null, retry_at = null, updated_at = intake.now()
  where t.store = p_store and t.failures > 0;
  return found;
end $$;
