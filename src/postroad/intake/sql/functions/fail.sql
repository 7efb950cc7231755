-- Records a failed attempt of a file.  It is retried with backoff; after p_most attempts its status is failed.
-- Returns the new status, null when the lease had expired.
create or replace function intake.fail(p_id bigint, p_token bigint, p_problem text, p_most integer, p_is_final boolean default false)
returns text
language sql set search_path from current as $$
  with tried as (
    update intake.imported_files f
    set attempts = f.attempts + 1, lost_workers = 0, error_message = p_problem,
        status = case when p_is_final or f.attempts + 1 >= p_most then 'failed' else intake._start_of(f.status) end,
        next_try_at = intake.now() + intake._backoff(f.attempts + 1), updated_at = intake.now(),
        lease_token = null, lease_owner = null, lease_until = null
    where f.id = p_id and f.lease_token = p_token
    returning f.status)
  select t.status from tried t, intake._record(array[p_id], case t.status when 'failed' then 'failed' else 'tried' end, p_problem);
$$;

-- Ends a version that will not be imported: it has vanished or was superseded at the source.
create or replace function intake.conclude(p_id bigint, p_token bigint, p_status text, p_note text) returns boolean
language sql set search_path from current as $$
  with concluded as (
    update intake.imported_files f
    set status = p_status, error_message = p_note, updated_at = intake.now(), attempts = 0,
        lease_token = null, lease_owner = null, lease_until = null
    where f.id = p_id and f.lease_token = p_token and p_status in ('vanished', 'superseded') returning f.id, f.server_id)
  select cardinality(intake._record(array_agg(c.id), p_status, p_note)) > 0 from concluded c, intake._forget_pages(c.server_id);
$$;

-- Removes the upload of a file from the journal, because it was aborted or lost by the store.
create or replace function intake.forget_upload(p_id bigint, p_upload_id text) returns void
language sql set search_path from current as $$
  select intake._forget_pages(f.server_id) from intake.imported_files f
  where f.id = p_id and f.upload_id = p_upload_id and f.status in ('vanished', 'superseded');
  with forgotten as (
    update intake.imported_files f set upload_id = null, bytes_done = case when f.status = 'completed' then f.filesize else 0 end,
           bytes_at_claim = 0
    where f.id = p_id and f.upload_id = p_upload_id returning f.id)
  delete from intake.file_parts p using forgotten f where p.file_id = f.id;
$$;
