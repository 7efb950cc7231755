-- Claims the scan of a server and returns its number; null if another scan is running or the server must not be scanned.
-- Locks: the server's row.  Errors: IN001 no such server.
create or replace function intake.begin_scan(p_server_id integer, p_lease interval default '60 seconds') returns bigint
language plpgsql set search_path from current as $$
declare
  v_server intake.sftp_servers := intake._server(p_server_id);
  v_number bigint;
begin
  if not v_server.is_active or v_server.status = 'host_key_changed'
     or v_server.scan_until > intake.now() or v_server.retry_at > intake.now() then
    return null;
  end if;
  v_number := nextval('intake.scan_number');
  update intake.sftp_servers s
  set scan_token = v_number, scan_until = intake.now() + p_lease
  where s.id = p_server_id;
  return v_number;
end $$;

-- Extends the lease of a scan.  Returns false when another scan has begun.
create or replace function intake.extend_scan(p_server_id integer, p_scan bigint, p_lease interval default '60 seconds')
returns boolean
language sql set search_path from current as $$
  with extended as (
    update intake.sftp_servers s set scan_until = intake.now() + p_lease
    where s.id = p_server_id and s.scan_token = p_scan returning 1)
  select exists (select from extended);
$$;

-- Ends a scan.  p_is_whole: everything was listed, so sightings that were not seen are deleted.
create or replace function intake.end_scan(
  p_server_id integer, p_scan bigint, p_interval interval, p_is_whole boolean, p_report jsonb) returns void
language plpgsql set search_path from current as $$
begin
  update intake.sftp_servers s
  set scan_token = null, scan_until = null, last_scan_at = intake.now(), last_scan = p_report,
      next_scan_at = intake.now() + coalesce(s.scan_interval, p_interval)
  where s.id = p_server_id and s.scan_token = p_scan;
  if found and p_is_whole then
    delete from intake.sightings g where g.server_id = p_server_id and g.scan < p_scan;
  end if;
end $$;

-- Returns the servers whose next scan is due.
create or replace function intake.due_servers() returns setof integer
language sql stable set search_path from current as $$
  select s.id from intake.sftp_servers s
  where s.is_active and s.status <> 'host_key_changed' and s.next_scan_at <= intake.now()
    and (s.scan_until is null or s.scan_until <= intake.now())
    and (s.retry_at is null or s.retry_at <= intake.now())
  order by s.next_scan_at;
$$;
