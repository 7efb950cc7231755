-- Returns the server and locks it. Raises IN001.
create or replace function intake._server(p_server_id integer) returns intake.sftp_servers
language plpgsql set search_path from current as $$
declare
  v_server intake.sftp_servers;
begin
  select * into v_server from intake.sftp_servers s where s.id = p_server_id for update;
  if not found then
    raise exception 'there is no server %', p_server_id
      using errcode = 'IN001', hint = 'List them: postroad intake servers list';
  end if;
  return v_server;
end $$;

-- Rejects a worker whose lease has expired.  Raises IN003.
create or replace function intake._lease_lost(p_file_id bigint) returns void
language plpgsql set search_path from current as $$
begin
  raise exception 'the lease of file % has expired', p_file_id
    using errcode = 'IN003', hint = 'Another worker may have the file now; stop working on it.';
end $$;

-- Raises IN002 when one of the files does not exist.
create or replace function intake._require_files(p_ids bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_id bigint;
begin
  select i into v_id from unnest(p_ids) i where not exists (select from intake.imported_files f where f.id = i) limit 1;
  if found then
    raise exception 'there is no file %', v_id using errcode = 'IN002', hint = 'List them: postroad intake files list';
  end if;
end $$;
