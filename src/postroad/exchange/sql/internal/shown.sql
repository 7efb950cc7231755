-- A process as its owner sees it; `files` carry what the server needs to read them, too.
create or replace function exchange._shown(p_process exchange.process) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'id', p_process.id, 'database', p_process.database_id, 'recipient', p_process.recipient,
    'owner', p_process.client_id, 'state', p_process.state, 'outcome', p_process.outcome,
    'started_at', p_process.started_at, 'ready_at', p_process.ready_at, 'ended_at', p_process.ended_at,
    'expires_at', p_process.expires_at, 'deadline', p_process.deadline, 'error', p_process.error,
    'marker_seq', p_process.marker_seq,
    'files', coalesce((
      select jsonb_agg(jsonb_build_object(
               'name', m.file_name, 'id', m.id, 'sender', m.sender, 'sequence', m.sequence, 'size', m.size,
               'sha256', m.sha256, 'media_type', m.media_type, 'is_group', m.is_group, 'order', m.order_number,
               'result', f.result, 'error', f.error,
               'number', m.number, 'database', m.database_id, 'folder', m.folder, 'placed', m.placed,
               'temporary', m.temporary) order by f.position)
      from exchange.process_file f join exchange.message m on m.number = f.number
      where f.process_id = p_process.id and not f.is_refused), '[]'),
    'received', coalesce((
      select jsonb_agg(m.name order by m.number)
      from exchange.message m
      where m.process_id = p_process.id and m.kind = 'reply' and m.state <> 'discarded'), '[]'))
$$;

-- A move as the server needs it: from where it is known to lie to where it belongs.
create or replace function exchange._move(p_message exchange.message) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'number', p_message.number, 'database', p_message.database_id, 'name', p_message.file_name, 'folder', p_message.folder,
    'placed', p_message.placed, 'temporary', p_message.temporary, 'size', p_message.size, 'sha256', p_message.sha256,
    'media_type', p_message.media_type, 'process', p_message.process_id, 'state', p_message.state)
$$;

-- What is to be moved for a process, by the recorded plan.
create or replace function exchange._moves(p_process text) returns jsonb
language sql stable set search_path from current as $$
  select coalesce(jsonb_agg(exchange._move(m) order by m.number), '[]')
  from exchange.message m
  where m.process_id = p_process and (m.folder is distinct from m.placed or m.temporary is not null)
$$;
