-- Functions that an operator calls.  Each returns the ids of the files that it changed.  Errors: IN002 no such file.

-- Retries failed, vanished, superseded or skipped files from where they stopped, files that wait for their next attempt, and
-- clean-ups that were given up.
create or replace function intake.retry(p_ids bigint[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  perform intake._require_files(p_ids);
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
  perform alerts.clear('intake.file.' || f) from unnest(v_ids) f;
  return intake._record(v_ids, 'retried', 'by hand');
end $$;

-- Excludes files from the import.  A running transfer loses its lease.
create or replace function intake.skip(p_ids bigint[]) returns bigint[]
language sql set search_path from current as $$
  select intake._require_files(p_ids);
  with skipped as (
    update intake.imported_files f
    set status = 'skipped', lease_token = null, lease_owner = null, lease_until = null, updated_at = intake.now()
    where f.id = any (p_ids) and f.status not in ('completed', 'notifying', 'uploaded_to_minio', 'skipped')
    returning f.id)
  select intake._record(array_agg(s.id order by s.id), 'skipped', 'by hand') from skipped s;
$$;

-- Fetches completed files again into the same object and posts a notice again.
create or replace function intake.reimport(p_ids bigint[]) returns bigint[]
language sql set search_path from current as $$
  select intake._require_files(p_ids);
  with again as (
    update intake.imported_files f
    set status = 'discovered', attempts = 0, lost_workers = 0, next_try_at = intake.now(), error_message = null, bytes_done = 0,
        bytes_at_claim = 0, completed_at = null, file_hash = null, cleanup = null, same_as = null, updated_at = intake.now(),
        traceparent = coalesce(nullif(current_setting('postroad.traceparent', true), ''), f.traceparent)
    where f.id = any (p_ids) and f.status = 'completed' and f.cleanup is distinct from 'pending'
    returning f.id)
  select intake._record(array_agg(a.id order by a.id), 'reimported', 'by hand') from again a;
$$;
