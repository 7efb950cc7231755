-- By hand: failed, vanished, superseded or skipped files are tried again from where they stopped.
create or replace function intake.retry(p_ids bigint[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  with tried as (
    update intake.imported_files f
    set status = 'discovered', attempts = 0, lost_workers = 0, next_try_at = intake.now(), error_message = null,
        updated_at = intake.now(), traceparent = coalesce(nullif(current_setting('postroad.traceparent', true), ''), f.traceparent)
    where f.id = any (p_ids) and f.status in ('failed', 'vanished', 'superseded', 'skipped') and f.completed_at is null
    returning f.id)
  , cleaned as (
    update intake.imported_files f set cleanup = 'pending', attempts = 0, next_try_at = intake.now()
    where f.id = any (p_ids) and f.cleanup = 'given_up' returning f.id)
  , waiting as (
    update intake.imported_files f set next_try_at = intake.now(), attempts = 0, lost_workers = 0
    where f.id = any (p_ids) and f.status in ('discovered', 'downloaded', 'uploaded_to_minio')
      and f.next_try_at > intake.now() returning f.id)
  select array_agg(a.id order by a.id) into v_ids
  from (select id from tried union all select id from cleaned union all select id from waiting) a;
  if v_ids is not null then perform intake._note(v_ids, 'retried', 'by hand'); end if;
  return coalesce(v_ids, '{}');
end $$;

-- By hand: not to be imported.  A transfer that runs loses its lease.
create or replace function intake.skip(p_ids bigint[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  with skipped as (
    update intake.imported_files f
    set status = 'skipped', lease_token = null, lease_owner = null, lease_until = null, updated_at = intake.now()
    where f.id = any (p_ids) and f.status not in ('completed', 'notifying', 'uploaded_to_minio', 'skipped')
    returning f.id)
  select array_agg(s.id order by s.id) into v_ids from skipped s;
  if v_ids is not null then perform intake._note(v_ids, 'skipped', 'by hand'); end if;
  return coalesce(v_ids, '{}');
end $$;

-- By hand: completed files are fetched again into the same object, and a notice is posted again.
create or replace function intake.reimport(p_ids bigint[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  with again as (
    update intake.imported_files f
    set status = 'discovered', attempts = 0, lost_workers = 0, next_try_at = intake.now(), error_message = null, bytes_done = 0,
        bytes_at_claim = 0, completed_at = null, file_hash = null, cleanup = null, same_as = null, updated_at = intake.now(),
        traceparent = coalesce(nullif(current_setting('postroad.traceparent', true), ''), f.traceparent)
    where f.id = any (p_ids) and f.status = 'completed' and f.cleanup is distinct from 'pending'
    returning f.id)
  select array_agg(a.id order by a.id) into v_ids from again a;
  if v_ids is not null then perform intake._note(v_ids, 'reimported', 'by hand'); end if;
  return coalesce(v_ids, '{}');
end $$;

-- By hand: the host's new key is trusted, and the server goes on.
create or replace function intake.trust_host_key(p_server_id integer, p_host_key text default null) returns text
language plpgsql set search_path from current as $$
declare
  v_server intake.sftp_servers := intake._server(p_server_id);
begin
  if coalesce(p_host_key, v_server.seen_host_key) is null then
    raise exception 'server % has shown no other key', v_server.name
      using errcode = 'IN005', hint = 'Give the key, or test the connection first.';
  end if;
  update intake.sftp_servers s
  set host_key = coalesce(p_host_key, s.seen_host_key), seen_host_key = null, status = 'new', problem = null,
      failures = 0, retry_at = null, next_scan_at = intake.now(), updated_at = intake.now()
  where s.id = p_server_id;
  return coalesce(p_host_key, v_server.seen_host_key);
end $$;
