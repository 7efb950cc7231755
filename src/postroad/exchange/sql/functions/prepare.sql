-- API_3: the replies and the results, all of them durable before the answer; the process is READY_TO_COMMIT.
--   p_replies  [{name, recipient, reply_to, size, sha256, media_type, temporary, database}]; temporary null: the reply was uploaded
--              before; database: whose folder has the file
--   p_results  {file name: {status, error, delay}}; a file without one counts as PROCESSED
--   p_manifest digest of the whole request; repeating it is OK, a different one is a contradiction
-- Answers {status: OK | CANCELLED | CONFLICT | NAMES | UPLOAD | FORBIDDEN | ELSEWHERE, is_new, moves}.  ELSEWHERE: the process
-- belongs to another database than the files, and nothing was changed.
-- Locks: the process's row, the lane.  Errors: MX001.
create or replace function exchange.prepare(
  p_epoch bigint, p_now double precision, p_client text, p_process text, p_manifest text, p_replies jsonb, p_results jsonb)
returns jsonb
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_process exchange.process;
  v_reply   record;
  v_message exchange.message;
  v_unknown text;
begin
  select p.* into v_process from exchange.process p where p.id = p_process for update;
  if v_process.id is null then return jsonb_build_object('status', 'CANCELLED'); end if;
  if v_process.client_id <> p_client then return jsonb_build_object('status', 'FORBIDDEN'); end if;
  if v_process.outcome = 'ABORTED' then return jsonb_build_object('status', 'CANCELLED', 'state', v_process.state); end if;
  if exists (select from jsonb_array_elements(p_replies) r where r ->> 'database' <> v_process.database_id) then
    return jsonb_build_object('status', 'ELSEWHERE', 'database', v_process.database_id);
  end if;
  if v_process.state <> 'STARTED' then
    perform exchange._bring_replies(p_process, p_replies) where v_process.outcome is null and v_process.manifest = p_manifest;
    return jsonb_build_object(
      'status', case when v_process.manifest = p_manifest then 'OK' else 'CONFLICT' end, 'is_new', false,
      'state', v_process.state, 'moves', exchange._moves(p_process));
  end if;
  select r.key into v_unknown from jsonb_object_keys(p_results) r (key)
  where r.key not in (select m.file_name from exchange.process_file f join exchange.message m on m.number = f.number
                      where f.process_id = p_process and not f.is_refused) limit 1;
  if v_unknown is not null then return jsonb_build_object('status', 'NAMES', 'name', v_unknown); end if;
  update exchange.process_file f
  set result = coalesce(p_results -> m.file_name ->> 'status', 'PROCESSED'), error = p_results -> m.file_name ->> 'error',
      delay = coalesce((p_results -> m.file_name ->> 'delay')::double precision, v_server.defer_delay)
  from exchange.message m where f.process_id = p_process and not f.is_refused and m.number = f.number;
  for v_reply in
    select r.* from jsonb_to_recordset(p_replies) as r (
      name text, recipient text, reply_to text, size bigint, sha256 text, media_type text, is_group boolean, temporary text,
      place integer)
    order by r.place
  loop
    if v_reply.temporary is not null then
      -- An uploaded reply of the same name is replaced.
      update exchange.message m set state = 'discarded', folder = null, finished_at = exchange.now()
      where m.process_id = p_process and m.state = 'uploaded' and lower(m.name) = lower(v_reply.name);
      perform exchange._add_reply(v_process, v_reply.name, v_reply.recipient, v_reply.reply_to, v_reply.size, v_reply.sha256,
                                  v_reply.media_type, v_reply.is_group, v_reply.temporary, 'prepared');
    else
      update exchange.message m
      set state = 'prepared', reply_to = v_reply.reply_to
      where m.process_id = p_process and m.state = 'uploaded' and m.name = v_reply.name and m.sha256 = v_reply.sha256
        and m.recipient in ('', v_reply.recipient) returning m.* into v_message;
      if not found then return exchange._refuse_prepare(v_reply.name); end if;
      if v_message.recipient <> v_reply.recipient then
        -- The upload did not name the recipient, and the id depends on the recipient.  The file keeps its name.
        begin
          update exchange.message m set recipient = v_reply.recipient, id = m.name where m.number = v_message.number;
        exception when unique_violation then
          -- The recipient has a reply of that name.
          update exchange.message m set recipient = v_reply.recipient, id = left(m.name, 40) || '.' || m.sequence || '.' || m.number
          where m.number = v_message.number;
        end;
      end if;
    end if;
  end loop;
  update exchange.message m set state = 'discarded', folder = null, finished_at = exchange.now()
  where m.process_id = p_process and m.state = 'uploaded';
  update exchange.process p
  set state = 'READY_TO_COMMIT', ready_at = exchange.now(), manifest = p_manifest,
      deadline = coalesce(p_now, v_server.served_seconds) + v_server.ready_timeout, expires_at = exchange.now() + make_interval(secs => v_server.ready_timeout)
  where p.id = p_process returning p.* into v_process;
  perform exchange._note(v_process, p_client, null);
  return jsonb_build_object('status', 'OK', 'is_new', true, 'state', v_process.state, 'moves', exchange._moves(p_process));
end $$;

-- API_3 was repeated before the outcome: the new files replace corrupt ones.  The answer must not be OK while a file is corrupt, because
-- the commit would lose a reply.
create or replace function exchange._bring_replies(p_process text, p_replies jsonb) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_reply record;
begin
  for v_reply in
    select m.number, m.name, m.state, r.temporary from exchange.message m
    left join jsonb_to_recordset(p_replies) as r (name text, temporary text) on r.name = m.name
    where m.process_id = p_process and m.kind = 'reply' and m.state in ('prepared', 'unknown') and exchange._is_bad(m.folder)
  loop
    if v_reply.temporary is null then perform exchange._refuse_prepare(v_reply.name); end if;
    update exchange.message m
    set folder = case m.state when 'prepared' then 'Prepared' else 'Unknown' end, error = null, object = exchange._object(v_reply.temporary)
    where m.number = v_reply.number;
    update exchange.move v set source = null, temporary = v_reply.temporary where v.number = v_reply.number;
    perform alerts.clear(format('exchange/corrupt/%s', v_reply.number));
  end loop;
end $$;

-- Rolls prepare back, because a reply that it names was not uploaded.
create or replace function exchange._refuse_prepare(p_name text) returns jsonb
language plpgsql volatile set search_path from current as $$
begin
  raise exception 'no reply % with this digest was uploaded before', quote_literal(p_name)
    using errcode = 'MX040', hint = 'PUT it to /processes/{id}/replies/{name} first.';
end $$;
