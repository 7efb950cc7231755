-- Completes files: sets the status and posts the notices in one transaction, once per file.  The notice goes to the bus queue file_events
-- and, if p_amqp_queue is given, with the requested fields to the outbox of RabbitMQ; both belong to the trace of the file.  A file with
-- the same content as its last version completes without a notice.  Returns the ids of the files that were completed by this call.
-- Errors: those of mbus.postn.
create or replace function intake.finish(
  p_ids bigint[], p_token bigint, p_amqp_queue text default null, p_amqp_fields text[] default '{*}')
returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids     bigint[];
  v_notices jsonb[];
  v_traces  text[];
  v_announced bigint[];
  v_iids    text[];
begin
  with done as (
    update intake.imported_files f
    set status = 'completed', completed_at = intake.now(), updated_at = intake.now(), attempts = 0, lost_workers = 0,
        error_message = null, lease_token = null, lease_owner = null, lease_until = null, next_try_at = intake.now(),
        cleanup = case when s.after_import <> 'leave' or s.way = 'temporary_file' then 'pending' end
    from intake.sftp_servers s
    where f.id = any (p_ids) and f.lease_token = p_token and f.status = 'notifying' and s.id = f.server_id
    returning f.id)
  select array_agg(d.id order by d.id) into v_ids from done d;
  if v_ids is null then return '{}'; end if;
  perform intake._record(v_ids, 'completed');
  delete from intake.file_parts p where p.file_id = any (v_ids);
  perform intake._mark_unchanged(v_ids);
  select array_agg(jsonb_build_object(
           'file_id', f.id, 'minio_path', intake._path_in_bucket(f.store, f.object_key), 'server', s.name, 'host', s.host,
           'filename', f.filename, 'path_hex', encode(f.path, 'hex'), 'version', f.version, 'size', f.filesize,
           'mtime', f.mtime, 'sha256', f.file_hash, 'store', f.store) order by f.id),
         array_agg(f.traceparent order by f.id), array_agg(f.id order by f.id)
    into v_notices, v_traces, v_announced
  from intake.imported_files f join intake.sftp_servers s on s.id = f.server_id
  where f.id = any (v_ids) and f.same_as is null;
  if v_notices is null then return v_ids; end if;
  execute 'select mbus.postn_file_events(data => $1, headers => mbus.trace_headers_of($2))' into v_iids using v_notices, v_traces;
  update intake.imported_files f set notice = n.iid from unnest(v_announced, v_iids) n (id, iid) where f.id = n.id;
  if p_amqp_queue is not null then
    if '*' <> all (p_amqp_fields) then
      v_notices := array(
        select (select jsonb_object_agg(e.key, e.value) from jsonb_each(n.notice) e where e.key = any (p_amqp_fields))
        from unnest(v_notices) with ordinality n(notice, place) order by n.place);
    end if;
    execute format('select mbus.%I(data => $1, headers => mbus.trace_headers_of($2))', 'postn_' || p_amqp_queue)
    using v_notices, v_traces;
  end if;
  return v_ids;
end $$;

-- Gives files with the same content as the last version of their path the version and object of that one.  Earlier rows of this kind are
-- deleted, so a source that changes the mtime at each scan does not add a row per scan.  A reimported file gets a notice.
create or replace function intake._mark_unchanged(p_ids bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_ids bigint[];
begin
  with unchanged as (
    update intake.imported_files f
    set same_as = o.id, version = o.version, store = o.store, object_key = o.object_key
    from intake.imported_files g
    cross join lateral (
      select p.* from intake.imported_files p
      where p.server_id = g.server_id and p.path_digest = g.path_digest and p.version < g.version and p.status = 'completed'
        and p.same_as is null
      order by p.version desc limit 1) o
    where f.id = g.id and g.id = any (p_ids) and o.file_hash = g.file_hash
      and not exists (select from intake.file_history h where h.file_id = g.id and h.status = 'reimported')
    returning f.id)
  select array_agg(u.id) into v_ids from unchanged u;
  if v_ids is null then return; end if;
  perform intake._record(v_ids, 'unchanged', 'the content is that of the version before; no notice');
  delete from intake.imported_files f using intake.imported_files u
  where u.id = any (v_ids) and f.same_as = u.same_as and f.id <> all (v_ids)
    and f.cleanup is distinct from 'pending' and f.lease_token is null;
end $$;

-- Returns the path of an object in its bucket: with the prefix that belongs to the address of an S3 store.
create or replace function intake._path_in_bucket(p_store text, p_object_key text) returns text
language sql immutable set search_path from current as $$
  select coalesce(substring(p_store from '^s3://[^/]+/(.+)$') || '/', '') || p_object_key;
$$;

-- Returns the due clean-ups at the sources; each is held for p_lease by postponing its next attempt.
create or replace function intake.due_cleanups(p_limit integer, p_lease interval default '60 seconds')
returns setof intake.imported_files
language sql set search_path from current as $$
  update intake.imported_files f set next_try_at = intake.now() + p_lease
  where f.id in (
    select g.id from intake.imported_files g
    join intake.sftp_servers s on s.id = g.server_id
    where g.cleanup = 'pending' and g.next_try_at <= intake.now()
      and s.is_active and (s.retry_at is null or s.retry_at <= intake.now()) and s.status <> 'host_key_changed'
    order by g.next_try_at limit p_limit for update of g skip locked)
  returning f.*;
$$;

-- Ends the clean-up of a file: it was removed, moved, or found missing or changed.
create or replace function intake.cleaned(p_id bigint, p_note text default null) returns void
language sql set search_path from current as $$
  with cleaned as (
    update intake.imported_files f set cleanup = 'done', updated_at = intake.now()
    where f.id = p_id and f.cleanup = 'pending' returning f.id)
  select intake._record(array_agg(c.id), 'cleaned', p_note) from cleaned c;
$$;

-- Records a failed clean-up.  It is retried with backoff and given up after p_most attempts.  Returns its state.
create or replace function intake.not_cleaned(p_id bigint, p_problem text, p_most integer) returns text
language sql set search_path from current as $$
  with tried as (
    update intake.imported_files f
    set attempts = f.attempts + 1, error_message = p_problem,
        cleanup = case when f.attempts + 1 >= p_most then 'given_up' else 'pending' end,
        next_try_at = intake.now() + intake._backoff(f.attempts + 1), updated_at = intake.now()
    where f.id = p_id and f.cleanup = 'pending'
    returning f.cleanup)
  select t.cleanup from tried t, intake._record(array[p_id], 'not_cleaned', p_problem);
$$;
