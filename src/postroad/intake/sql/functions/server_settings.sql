-- Adds a server and returns its id.  p_values has the settings under the names of their columns.  Without a name it is named after
-- its host, with a number if that name is taken.  Errors: 23505 the name is taken or the folder is watched already.
create or replace function intake.create_server(p_values jsonb) returns integer
language plpgsql set search_path from current as $$
declare
  v_id integer;
begin
  if coalesce(p_values ->> 'name', '') = '' then
    p_values := p_values || (
      select jsonb_build_object('name', n.name)
      from generate_series(1, 1 + (select count(*) from intake.sftp_servers)) i
      cross join lateral (select (p_values ->> 'host') || case i when 1 then '' else '-' || i end) n(name)
      where not exists (select from intake.sftp_servers s where s.name = n.name) order by i limit 1);
  end if;
  execute format('insert into intake.sftp_servers (%1$s) select %1$s from jsonb_populate_record(null::intake.sftp_servers, $1)
                  returning id', (select string_agg(quote_ident(k), ', ') from jsonb_object_keys(p_values) k))
  into v_id using p_values;
  return v_id;
end $$;

-- Changes the settings in p_values, by the names of their columns; the server is scanned again immediately.  A changed login or folder clears its failures.
-- Locks: the server's row.  Errors: IN001 no such server, 23505 as above.
create or replace function intake.change_server(p_server_id integer, p_values jsonb) returns void
language plpgsql set search_path from current as $$
declare
  v_is_new constant boolean := p_values ?| '{credentials,host,port,username,host_key,trusts_first_key,directory,after_import,move_to}';
begin
  perform intake._server(p_server_id);
  if p_values = '{}' then return; end if;
  execute format('update intake.sftp_servers s set (%1$s) = (select %1$s from jsonb_populate_record(s, $1)) where s.id = $2',
                 (select string_agg(quote_ident(k), ', ') from jsonb_object_keys(p_values) k))
  using p_values, p_server_id;
  update intake.sftp_servers s set updated_at = intake.now(), next_scan_at = intake.now() where s.id = p_server_id;
  if v_is_new then perform intake._forgive(p_server_id); end if;
end $$;

-- Deletes a server with the journal of its files; the objects in the store stay.
create or replace function intake.delete_server(p_server_id integer) returns void
language sql set search_path from current as $$
  delete from intake.sftp_servers s where s.id = p_server_id;
  select alerts.clear('intake.server.' || p_server_id);
$$;

-- Replaces the sealed credentials of servers, sealed with another key.
create or replace function intake.reseal(p_server_ids integer[], p_credentials text[]) returns void
language sql set search_path from current as $$
  update intake.sftp_servers s set credentials = u.credentials
  from unnest(p_server_ids, p_credentials) u(id, credentials) where s.id = u.id;
$$;

-- Trusts a host key, by default the one that the server presented last, and resumes the server.
-- Errors: IN001 no such server, IN005 it has presented no other key.
create or replace function intake.trust_host_key(p_server_id integer, p_host_key text default null) returns text
language plpgsql set search_path from current as $$
declare
  v_server   constant intake.sftp_servers := intake._server(p_server_id);
  v_host_key constant text := coalesce(p_host_key, v_server.seen_host_key);
begin
  if v_host_key is null then
    raise exception 'server % has shown no other key', v_server.name
      using errcode = 'IN005', hint = 'Specify the key, or test the connection first.';
  end if;
  update intake.sftp_servers s
  set host_key = v_host_key, seen_host_key = null, next_scan_at = intake.now(), updated_at = intake.now()
  where s.id = p_server_id;
  perform intake._forgive(p_server_id);
  return v_host_key;
end $$;

-- Clears the failures of a server and its alert.
create or replace function intake._forgive(p_server_id integer) returns void
language sql set search_path from current as $$
  update intake.sftp_servers s set status = 'new', problem = null, failures = 0, retry_at = null where s.id = p_server_id;
  select alerts.clear('intake.server.' || p_server_id);
$$;
