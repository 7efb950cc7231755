-- Puts a parked or deferred message back: handed out again at the next API_1, its failures forgotten.  A parked reply waits
-- for its recipient again.
--   p_sender, p_database, p_recipient  needed where the id alone names several
-- Answers {status: OK | MISSING | AMBIGUOUS | CONFLICT, state, moves}.
create or replace function exchange.requeue(
  p_epoch bigint, p_id text, p_sender text, p_database text, p_recipient text default null) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_numbers bigint[];
  v_message exchange.message;
begin
  perform exchange._enter(p_epoch);
  -- What can be put back first; then what was put back before, or cannot be.
  select coalesce(nullif(array_agg(m.number) filter (where m.state in ('parked', 'deferred')), '{}'), array_agg(m.number))
  into v_numbers from exchange.message m
  where m.id = p_id and (m.kind = 'message' or m.state in ('parked', 'waiting', 'done'))
    and (p_sender is null or m.sender = p_sender) and (p_database is null or m.database_id = p_database)
    and (p_recipient is null or m.recipient = p_recipient);
  if v_numbers is null then return jsonb_build_object('status', 'MISSING'); end if;
  if cardinality(v_numbers) > 1 then return jsonb_build_object('status', 'AMBIGUOUS'); end if;
  select m.* into v_message from exchange.message m where m.number = v_numbers[1] for update;
  if v_message.state in ('parked', 'deferred') then
    perform alerts.clear(format('exchange/parked/%s', v_message.number)) where v_message.state = 'parked';
    perform alerts.clear(format('exchange/corrupt/%s', v_message.number)) where v_message.state = 'parked';
    -- A reply is parked only when its process has committed.
    update exchange.message m
    set state = case m.kind when 'reply' then 'waiting' else 'queued' end, folder = 'Messages', failures = 0, expiries = 0,
        available_at = null, error = null, finished_at = null, is_parked_by_file = false,
        process_id = case m.kind when 'reply' then m.process_id end
    where m.number = v_message.number returning m.* into v_message;
  elsif v_message.state not in ('queued', 'waiting') then
    return jsonb_build_object('status', 'CONFLICT', 'state', v_message.state);
  end if;
  return jsonb_build_object('status', 'OK', 'state', v_message.state, 'moves', exchange._moves_of(v_message.number));
end $$;
