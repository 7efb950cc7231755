-- Releases expired leases: the files repeat their step, and the stored parts stay.  A lost worker does not count as an attempt
-- of the file.  But after 50 in a row without a byte of progress the file fails with an alert, because it may be what crashes the workers.
create or replace function intake._release_expired_files(p_ids bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_ids    bigint[];
  v_alerts bigint;
begin
  with freed as (
    update intake.imported_files f
    set lost_workers = case when f.lease_owner = 'queued' then f.lost_workers
                            when f.bytes_done > f.bytes_at_claim then 0 else f.lost_workers + 1 end,
        status = case when f.lease_owner <> 'queued' and f.bytes_done <= f.bytes_at_claim and f.lost_workers + 1 >= 50
                      then 'failed' else intake._start_of(f.status) end,
        error_message = case when f.lease_owner = 'queued' then f.error_message
                             else 'the worker ' || f.lease_owner || ' was lost'
                                  || case when f.bytes_done <= f.bytes_at_claim and f.lost_workers + 1 >= 50
                                          then ', the last of 50 in a row without progress' else '' end end,
        lease_token = null, lease_owner = null, lease_until = null, updated_at = intake.now()
    where f.id = any (p_ids) and f.lease_until <= intake.now()
    returning f.id, f.status, f.error_message)
  , alerted as (
    select alerts.raise('intake.file.' || f.id, 'intake', 'error', format('File %s could not be imported', f.id), f.error_message)
    from freed f where f.status = 'failed')
  select array_agg(f.id), (select count(*) from alerted) into v_ids, v_alerts from freed f;
  perform intake._record(v_ids, 'released', 'its lease expired');
end $$;

create or replace function intake._release_expired(p_server_id integer) returns void
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  v_ids := array(
    select f.id from intake.imported_files f
    where f.server_id = p_server_id and f.lease_token is not null and f.lease_until <= intake.now()
    order by f.id for update skip locked);
  if cardinality(v_ids) > 0 then perform intake._release_expired_files(v_ids); end if;
end $$;

-- The way out of every intermediate state: releases expired leases and returns the steps that wait for a task.
-- Locks: the files that are not locked.
create or replace function intake.reconcile(p_limit integer default 1000, p_hold interval default '60 seconds')
returns table (step text, ids bigint[])
language plpgsql set search_path from current as $$
declare
  v_step record;
begin
  perform intake._release_expired(s.id) from intake.sftp_servers s;
  for v_step in select * from (values ('upload', 'downloaded'), ('notify', 'uploaded_to_minio')) v(step, status) loop
    with ready as (
      select f.id from intake.imported_files f
      where f.status = v_step.status and f.lease_token is null and f.next_try_at <= intake.now()
      order by f.next_try_at, f.id limit p_limit for update skip locked)
    , held as (
      update intake.imported_files f
      set lease_token = t.token, lease_owner = 'queued', lease_until = intake.now() + p_hold
      from (select nextval('intake.lease_token') as token) t
      where f.id in (select r.id from ready r) returning f.id)
    select array_agg(h.id order by h.id) into ids from held h;
    step := v_step.step;
    if ids is not null then return next; end if;
  end loop;
end $$;

-- Returns uploads that will never be completed, because their files have ended.
create or replace function intake.dead_uploads(p_limit integer default 100)
returns table (id bigint, store text, object_key text, upload_id text)
language sql stable set search_path from current as $$
  select f.id, f.store, f.object_key, f.upload_id from intake.imported_files f
  where f.upload_id is not null and f.status in ('failed', 'vanished', 'superseded', 'skipped', 'completed')
  order by f.id limit p_limit;
$$;

-- Returns the upload ids that belong to a file.
create or replace function intake.live_uploads(p_upload_ids text[]) returns setof text
language sql stable set search_path from current as $$
  select f.upload_id from intake.imported_files f where f.upload_id = any (p_upload_ids);
$$;
