-- The end: status completed and the notice, in one transaction, once.  Takes files that were claimed for the step
-- notify.  The notice goes to the bus queue file_events and, where p_amqp_queue names one, to the outbox of
-- RabbitMQ, with the fields that are asked for; both on the
-- trace of the file.  Returns the ids that were completed by this call.
-- Errors: those of mbus.postn.
create or replace function intake.finish(
  p_ids bigint[], p_token bigint, p_amqp_queue text default null, p_amqp_fields text[] default '{*}')
returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids     bigint[];
  v_notices jsonb[];
  v_traces  text[];
begin
  with done as (
    update intake.imported_files f
    set status = 'completed', completed_at = intake.now(), updated_at = intake.now(), attempts = 0, lost_workers = 0,
        error_message = null,
        lease_token = null, lease_owner = null, lease_until = null, next_try_at = intake.now(),
        cleanup = case when s.after_import <> 'leave' or s.way = 'temporary_file' then 'pending' end
    from intake.sftp_servers s
    where f.id = any (p_ids) and f.lease_token = p_token and f.status = 'notifying' and s.id = f.server_id
    returning f.*, s.name as server_name, s.host)
  select array_agg(d.id order by d.id),
         array_agg(jsonb_build_object(
           'file_id', d.id, 'minio_path', d.object_key, 'server', d.server_name, 'host', d.host,
           'filename', d.filename, 'path_hex', encode(d.path, 'hex'), 'version', d.version, 'size', d.filesize,
           'mtime', d.mtime, 'sha256', d.file_hash, 'store', d.store) order by d.id),
         array_agg(d.traceparent order by d.id)
    into v_ids, v_notices, v_traces
  from done d;
  if v_ids is null then return '{}'; end if;
  perform intake._note(v_ids, 'completed', null);
  delete from intake.file_parts p where p.file_id = any (v_ids);
  execute 'select mbus.postn_file_events(data => $1, headers => mbus.trace_headers_of($2))' using v_notices, v_traces;
  if p_amqp_queue is not null then
    if not '*' = any (p_amqp_fields) then
      v_notices := array(
        select (select jsonb_object_agg(e.key, e.value) from jsonb_each(n.notice) e where e.key = any (p_amqp_fields))
        from unnest(v_notices) with ordinality n(notice, place) order by n.place);
    end if;
    execute format('select mbus.%I(data => $1, headers => mbus.trace_headers_of($2))', 'postn_' || p_amqp_queue)
    using v_notices, v_traces;
  end if;
  return v_ids;
end $$;

-- What is left to do at the source, due now; held for p_lease by moving its next try.
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

-- A file at the source was removed, moved, or found gone or changed.
create or replace function intake.cleaned(p_id bigint, p_note text default null) returns void
language plpgsql set search_path from current as $$
begin
  update intake.imported_files f set cleanup = 'done', updated_at = intake.now() where f.id = p_id and f.cleanup = 'pending';
  if found then perform intake._note(array[p_id], 'cleaned', p_note); end if;
end $$;

-- It could not be removed or moved: again later, given up after p_most tries.
create or replace function intake.not_cleaned(p_id bigint, p_problem text, p_most integer) returns text
language plpgsql set search_path from current as $$
declare
  v_cleanup text;
begin
  update intake.imported_files f
  set attempts = f.attempts + 1, error_message = p_problem,
      cleanup = case when f.attempts + 1 >= p_most then 'given_up' else 'pending' end,
      next_try_at = intake.now() + intake._backoff(f.attempts + 1), updated_at = intake.now()
  where f.id = p_id and f.cleanup = 'pending'
  returning f.cleanup into v_cleanup;
  perform intake._note(array[p_id], 'not_cleaned', p_problem);
  return v_cleanup;
end $$;
