-- The server, locked.  Raises IN001.
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

-- Refuses a holder whose lease has ended.  Raises IN003.
create or replace function intake._lease_lost(p_file_id bigint) returns void
language plpgsql set search_path from current as $$
begin
  raise exception 'the lease of file % has ended', p_file_id
    using errcode = 'IN003', hint = 'Somebody else may have the file now; drop the work.';
end $$;
