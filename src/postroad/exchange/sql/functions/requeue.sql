-- Requeues a parked or deferred message: it is handed out again at the next API_1, and its failures are reset.  A parked reply waits
-- for its recipient again.
--   p_sender, p_database, p_recipient  needed if several messages have the id
-- Answers {status: OK | MISSING | AMBIGUOUS | CONFLICT, state, moves}.
create or replace function exchange.requeue(
  p_epoch bigint, p_id text, p_sender text, p_database text, p_recipient text default null) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_numbers bigint[];
  v_message exchange.message;
begin
  perform exchange._enter(p_epoch);
  -- Messages that can be requeued are preferred to those that already were, or cannot be.
  select coalesce(nullif(array_agg(m.number) filter (where m.state in ('parked', 'deferred')), '{}'), array_agg(m.number))
  into v_numbers from exchange.message m
  where m.id = p_id and (m.kind = 'message' or m.state in ('parked', 'waiting', 'done'))
    and (p_sender is null or m.sender = p_sender) and (p_database is null or m.database_id = p_database)
    and (p_recipient is null or m.recipient = p_recipient);
  if v_numbers is null then return jsonb_build_object('status', 'MISSING'); end if;
  if cardinality(v_numbers) > 1 then return jsonb_build_object('status', 'AMBIGUOUS'); end if;
  select m.* into v_message from exchange.message m where m.number = v_numbers[1] for update;
  if v_message.state in ('parked', 'deferred') then
    v_message := exchange._requeue(v_message);
  elsif v_message.state not in ('queued', 'waiting') then
    return jsonb_build_object('status', 'CONFLICT', 'state', v_message.state);
  end if;
  return jsonb_build_object('status', 'OK', 'state', v_message.state, 'moves', exchange._moves_of(v_message.number));
end $$;

-- Undoes the quarantine of missing files: requeues every message and reply that was parked only because of its file, and
-- gives one that kept its state its folder again.  A file that is still missing is quarantined again when the server moves
-- it.  Returns their number.  p_database null: in all databases.
create or replace function exchange.requeue_by_file(p_epoch bigint, p_database text default null) returns bigint
language plpgsql volatile set search_path from current as $$
declare
  v_message exchange.message;
  v_count   bigint := 0;
begin
  perform exchange._enter(p_epoch);
  for v_message in
    select m.* from exchange.message m
    where (p_database is null or m.database_id = p_database)
      and (m.state = 'parked' and m.is_parked_by_file
           or m.folder is null and m.state in ('done', 'leased', 'unknown', 'prepared') and m.error like 'found by check:%')
    order by m.number for update
  loop
    if v_message.state = 'parked' then
      perform exchange._requeue(v_message);
    else
      perform alerts.clear(format('exchange/corrupt/%s', v_message.number));
      update exchange.message m
      set folder = case m.state when 'done' then 'Log' when 'unknown' then 'Unknown' when 'prepared' then 'Prepared' else 'Messages' end,
          error = null
      where m.number = v_message.number;
    end if;
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Requeues one message or reply.  A reply is parked only when its process has committed.
create or replace function exchange._requeue(p_message exchange.message) returns exchange.message
language sql volatile set search_path from current as $$
  select alerts.clear(format('exchange/%s/%s', k.kind, p_message.number)) from unnest(array['parked', 'corrupt']) k (kind)
  where p_message.state = 'parked';
  update exchange.message m
  set state = case m.kind when 'reply' then 'waiting' else 'queued' end, folder = 'Messages', failures = 0, expiries = 0,
      available_at = null, error = null, finished_at = null, is_parked_by_file = false,
      process_id = case m.kind when 'reply' then m.process_id end
  where m.number = p_message.number returning m.*
$$;
