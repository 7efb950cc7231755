-- A process as JSON for its owner; `files` also contain the facts with which the server reads them.
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
               'number', m.number, 'database', m.database_id, 'folder', m.folder, 'object', m.object) order by f.position)
      from exchange.process_file f join exchange.message m on m.number = f.number
      where f.process_id = p_process.id and not f.is_refused), '[]'),
    'received', coalesce((
      select jsonb_agg(m.name order by m.number)
      from exchange.message m
      where m.process_id = p_process.id and m.kind = 'reply' and m.state <> 'discarded'), '[]'))
$$;
