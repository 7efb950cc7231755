-- Returns a page of the replies addressed to a client, oldest first: at least one, and as many as fit in the limits.  p_after: the last
-- number of the previous page.  has_more: whether another page follows.
create or replace function exchange.replies(p_recipient text, p_limit integer, p_max_bytes bigint, p_after bigint)
returns table (number bigint, id text, name text, database text, sender text, recipient text, sequence bigint, reply_to text, size bigint,
               sha256 text, media_type text, is_group boolean, created_at timestamptz, process text, file_name text, folder text,
               has_more boolean)
language sql stable set search_path from current as $$
  select w.number, w.id, w.name, w.database_id, w.sender, w.recipient, w.sequence, w.reply_to, w.size, w.sha256, w.media_type, w.is_group,
         w.created_at, w.process_id, w.file_name, w.folder, count(*) over () < w.found
  from (select m.*, sum(m.size) over (order by m.number) as total, row_number() over (order by m.number) as place,
               count(*) over () as found
        from (select m.* from exchange.message m
              where m.recipient = p_recipient and m.state = 'waiting' and m.number > coalesce(p_after, 0)
              order by m.number limit p_limit + 1) m) w
  where w.place = 1 or w.place <= p_limit and w.total <= p_max_bytes
  order by w.number
$$;

-- The state of a message, for its sender; null if the sender has sent no message with this id.
create or replace function exchange.message_status(p_sender text, p_id text) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'id', m.id, 'database', m.database_id, 'recipient', nullif(m.recipient, ''), 'sequence', m.sequence, 'state', m.state,
    'error', m.error, 'failures', m.failures, 'created_at', m.created_at, 'finished_at', m.finished_at)
  from exchange.message m
  where m.kind = 'message' and m.sender = p_sender and lower(m.id) = lower(p_id) and m.id = p_id
$$;

-- One reply addressed to a client, acknowledged or not.
create or replace function exchange.reply(p_recipient text, p_id text)
returns setof exchange.message
language sql stable set search_path from current as $$
  select m.* from exchange.message m
  where m.kind = 'reply' and m.recipient = p_recipient and lower(m.id) = lower(p_id) and m.id = p_id
    and m.state in ('waiting', 'done')
$$;

-- Acknowledges a reply, which goes to Log.  Repeatable.  Answers {status:  OK | MISSING, moves}.  A parked reply is accepted, too: it was
-- read before its file was found to be corrupt, and is not delivered again.
create or replace function exchange.ack(p_epoch bigint, p_recipient text, p_id text) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_reply exchange.message;
begin
  perform exchange._enter(p_epoch);
  select m.* into v_reply from exchange.message m
  where m.kind = 'reply' and m.recipient = p_recipient and lower(m.id) = lower(p_id) and m.id = p_id
    and m.state in ('waiting', 'done', 'parked');
  if v_reply.number is null then return jsonb_build_object('status', 'MISSING'); end if;
  update exchange.message m
  set state = 'done', folder = case when m.state = 'waiting' then 'Log' else m.folder end, finished_at = exchange.now()
  where m.number = v_reply.number and m.state in ('waiting', 'parked');
  perform alerts.clear(format('exchange/corrupt/%s', v_reply.number)) where v_reply.state = 'parked';
  return jsonb_build_object('status', 'OK', 'moves', exchange._moves_of(v_reply.number));
end $$;
