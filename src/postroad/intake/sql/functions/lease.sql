-- Claims files for one step: transfer, upload (from a temporary file) or notify.  All files of a call get one token,
-- which every later step checks.  Files that are not ready for the step are left out.
-- Locks: the files, in order of id.
create or replace function intake.claim(p_ids bigint[], p_step text, p_owner text, p_lease interval)
returns setof intake.imported_files
language plpgsql set search_path from current as $$
declare
  v_token constant bigint := nextval('intake.lease_token');
  v_from  constant text := case p_step when 'transfer' then 'discovered' when 'upload' then 'downloaded'
                                       when 'notify' then 'uploaded_to_minio' end;
  v_to    constant text := case p_step when 'transfer' then 'downloading' when 'upload' then 'uploading_to_minio'
                                       when 'notify' then 'notifying' end;
begin
  if v_from is null then
    raise exception 'there is no step %', p_step using errcode = 'IN004', hint = 'Use transfer, upload or notify.';
  end if;
  perform f.id from intake.imported_files f where f.id = any (p_ids) order by f.id for update;
  perform intake._release_expired_files(p_ids);
  return query
    update intake.imported_files f
    set status = v_to, lease_token = v_token, lease_owner = p_owner, lease_until = intake.now() + p_lease,
        bytes_at_claim = f.bytes_done, updated_at = intake.now()
    where f.id = any (p_ids) and f.status = v_from and (f.lease_token is null or f.lease_owner = 'queued')
      and exists (select from intake.sftp_servers s
                  where s.id = f.server_id and (p_step = 'notify' or s.is_active and s.status <> 'host_key_changed'))
    returning f.*;
end $$;

-- Extends leases; returns the ids that are still held.
create or replace function intake.extend(p_ids bigint[], p_token bigint, p_lease interval) returns bigint[]
language sql set search_path from current as $$
  with held as (
    update intake.imported_files f set lease_until = intake.now() + p_lease
    where f.id = any (p_ids) and f.lease_token = p_token and f.lease_until > intake.now()
    returning f.id)
  select coalesce(array_agg(h.id), '{}') from held h;
$$;

-- Releases files in their state, without a failed attempt: the worker stops, or the source or store is down.
create or replace function intake.release(p_ids bigint[], p_token bigint, p_note text default null) returns void
language sql set search_path from current as $$
  with released as (
    update intake.imported_files f
    set status = intake._start_of(f.status), lease_token = null, lease_owner = null, lease_until = null,
        error_message = coalesce(p_note, f.error_message), updated_at = intake.now()
    where f.id = any (p_ids) and f.lease_token = p_token
    returning f.id)
  select intake._record(array_agg(r.id), 'released', p_note) from released r where p_note is not null;
$$;

-- Delays the next attempt of held files: every worker of this machine would fail in the same way.
create or replace function intake.postpone(p_ids bigint[], p_token bigint, p_pause interval) returns void
language sql set search_path from current as $$
  update intake.imported_files f set next_try_at = intake.now() + p_pause
  where f.id = any (p_ids) and f.lease_token = p_token;
$$;
