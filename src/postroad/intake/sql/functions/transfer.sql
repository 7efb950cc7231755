-- Records the beginning of an upload.  Parts of an earlier upload are deleted.
-- Errors: IN003 lease expired.
create or replace function intake.begin_upload(
  p_id bigint, p_token bigint, p_store text, p_object_key text, p_upload_id text, p_part_size bigint) returns void
language plpgsql set search_path from current as $$
begin
  update intake.imported_files f
  set store = p_store, object_key = p_object_key, upload_id = p_upload_id, part_size = p_part_size, bytes_done = 0,
      bytes_at_claim = 0, updated_at = intake.now()
  where f.id = p_id and f.lease_token = p_token;
  if not found then perform intake._lease_lost(p_id); end if;
  delete from intake.file_parts p where p.file_id = p_id;
end $$;

-- Records a part that the store has, and extends the lease.  Errors: IN003 lease expired.
create or replace function intake.store_part(
  p_id bigint, p_token bigint, p_number integer, p_size bigint, p_etag text, p_sha256 bytea, p_lease interval)
returns void
language plpgsql set search_path from current as $$
begin
  perform from intake.imported_files f where f.id = p_id and f.lease_token = p_token for update;
  if not found then perform intake._lease_lost(p_id); end if;
  -- A call that is repeated after a lost answer changes nothing.
  insert into intake.file_parts (file_id, number, size, etag, sha256)
  values (p_id, p_number, p_size, p_etag, p_sha256)
  on conflict do nothing;
  update intake.imported_files f
  set bytes_done = f.bytes_done + case when found then p_size else 0 end,
      lease_until = intake.now() + p_lease, updated_at = intake.now()
  where f.id = p_id;
end $$;

-- Returns the parts that the store has, in order.
create or replace function intake.parts(p_id bigint) returns setof intake.file_parts
language sql stable set search_path from current as $$
  select * from intake.file_parts p where p.file_id = p_id order by p.number;
$$;

-- Records that the file is complete in the temporary folder; its upload into the store begins without parts.
create or replace function intake.downloaded(p_id bigint, p_token bigint, p_hash text) returns void
language plpgsql set search_path from current as $$
begin
  update intake.imported_files f
  set status = 'downloaded', file_hash = p_hash, lease_token = null, lease_owner = null, lease_until = null,
      store = null, object_key = null, upload_id = null, part_size = null, bytes_done = 0, attempts = 0, lost_workers = 0,
      error_message = null, next_try_at = intake.now(), updated_at = intake.now()
  where f.id = p_id and f.lease_token = p_token;
  if not found then perform intake._lease_lost(p_id); end if;
  delete from intake.file_parts p where p.file_id = p_id;
  perform intake._record(array[p_id], 'downloaded');
end $$;

-- Records objects that are complete in the store and checked.  Returns the ids that were still held.
create or replace function intake.uploaded(
  p_ids bigint[], p_token bigint, p_store text, p_keys text[], p_hashes text[]) returns bigint[]
language sql set search_path from current as $$
  with done as (
    update intake.imported_files f
    set status = 'uploaded_to_minio', store = p_store, object_key = u.object_key, file_hash = u.hash,
        bytes_done = f.filesize, upload_id = null, attempts = 0, lost_workers = 0, error_message = null,
        lease_token = null, lease_owner = null, lease_until = null, next_try_at = intake.now(),
        updated_at = intake.now()
    from unnest(p_ids, p_keys, p_hashes) u(id, object_key, hash)
    where f.id = u.id and f.lease_token = p_token and f.status in ('downloading', 'uploading_to_minio')
    returning f.id)
  select intake._record(array_agg(d.id), 'uploaded_to_minio') from done d;
$$;

-- Restarts the download, because the temporary file no longer exists.
create or replace function intake.download_again(p_id bigint, p_token bigint) returns void
language sql set search_path from current as $$
  with again as (
    update intake.imported_files f
    set status = 'discovered', file_hash = null, error_message = 'the temporary file is gone',
        lease_token = null, lease_owner = null, lease_until = null, updated_at = intake.now()
    where f.id = p_id and f.lease_token = p_token returning f.id)
  select intake._record(array_agg(a.id), 'discovered', 'the temporary file is gone') from again a;
$$;
