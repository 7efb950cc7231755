-- Records a reply that is uploaded before API_3 names it; its file has its temporary name in Prepared.
-- The same name and content again: OK, and the new file is not needed (is_new false).  Other content replaces it while
-- the process is STARTED.  Answers {status: OK | CANCELLED | CONFLICT | FORBIDDEN, is_new, moves}.
-- Locks: the process's row, the lane.  Errors: MX001.
create or replace function exchange.upload_reply(
  p_epoch bigint, p_client text, p_process text, p_name text, p_recipient text, p_size bigint, p_sha256 text,
  p_media_type text, p_temporary text)
returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_process exchange.process;
  v_reply   exchange.message;
begin
  select p.* into v_process from exchange.process p where p.id = p_process for update;
  if v_process.id is null then return jsonb_build_object('status', 'CANCELLED'); end if;
  if v_process.client_id <> p_client then return jsonb_build_object('status', 'FORBIDDEN'); end if;
  if v_process.outcome = 'ABORTED' then return jsonb_build_object('status', 'CANCELLED', 'state', v_process.state); end if;
  select m.* into v_reply from exchange.message m
  where m.process_id = p_process and m.kind = 'reply' and lower(m.name) = lower(p_name) and m.state <> 'discarded';
  if v_reply.sha256 = p_sha256 and v_reply.name = p_name and v_reply.recipient = coalesce(p_recipient, v_reply.recipient) then
    return jsonb_build_object('status', 'OK', 'is_new', false, 'moves', exchange._moves(p_process));
  end if;
  if v_process.state <> 'STARTED' or v_reply.name <> p_name then
    return jsonb_build_object('status', 'CONFLICT', 'state', v_process.state);
  end if;
  update exchange.message m set state = 'discarded', folder = null, finished_at = exchange.now()
  where m.number = v_reply.number;
  perform exchange._add_reply(v_process, p_name, coalesce(p_recipient, ''), null, p_size, p_sha256, p_media_type, false,
                              p_temporary, 'uploaded');
  return jsonb_build_object('status', 'OK', 'is_new', true, 'moves', exchange._moves(p_process));
end $$;

-- A row for a reply whose file has its temporary name in Prepared.  Its id is its name; if the recipient has already had a reply of that
-- name, the sequence distinguishes them.
create or replace function exchange._add_reply(
  p_process exchange.process, p_name text, p_recipient text, p_reply_to text, p_size bigint, p_sha256 text,
  p_media_type text, p_is_group boolean, p_temporary text, p_state text)
returns void
language plpgsql volatile set search_path from current as $$
declare
  v_sequence bigint;
  v_id       text := p_name;
  v_number   bigint;
begin
  insert into exchange.lane as l (database_id, sender, sequence, replies) values (p_process.database_id, p_process.client_id, 1, 1)
  on conflict on constraint lane_pkey do update set sequence = l.sequence + 1, replies = l.replies + 1
  returning l.sequence into v_sequence;
  loop
    insert into exchange.message as m (
      database_id, kind, sender, id, name, sequence, recipient, state, reply_to, file_name, size, sha256, digest, media_type,
      is_group, folder, process_id, object)
    values (
      p_process.database_id, 'reply', p_process.client_id, v_id, p_name, v_sequence, p_recipient, p_state, p_reply_to,
      exchange._file_name(v_sequence, p_name, p_process.client_id, p_recipient, p_media_type),
      p_size, p_sha256, '', p_media_type, p_is_group, 'Prepared', p_process.id, exchange._object(p_temporary))
    on conflict (recipient, lower(id)) where kind = 'reply' and state <> 'discarded' do nothing
    returning m.number into v_number;
    exit when found;
    -- Other replies may have such names; a random suffix ends the loop.
    v_id := left(p_name, 40) || '.' || v_sequence
         || case when v_id = p_name then '' else '.' || left(md5(gen_random_uuid()::text), 8) end;
  end loop;
  insert into exchange.move (number, temporary) values (v_number, p_temporary);
end $$;
