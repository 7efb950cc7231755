-- Puts a parked or deferred message back: handed out again at the next API_1, its failures forgotten.
--   p_sender  needed where several senders have used the id
-- Answers {status: OK | MISSING | AMBIGUOUS | CONFLICT, state, moves}.
create or replace function exchange.requeue(p_epoch bigint, p_id text, p_sender text, p_database text) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_numbers bigint[];
  v_message exchange.message;
begin
  perform exchange._enter(p_epoch);
  select array_agg(m.number) into v_numbers from exchange.message m
  where m.kind = 'message' and m.id = p_id and (p_sender is null or m.sender = p_sender)
    and (p_database is null or m.database_id = p_database);
  if v_numbers is null then return jsonb_build_object('status', 'MISSING'); end if;
  if cardinality(v_numbers) > 1 then return jsonb_build_object('status', 'AMBIGUOUS'); end if;
  select m.* into v_message from exchange.message m where m.number = v_numbers[1] for update;
  if v_message.state in ('parked', 'deferred') then
    perform alerts.clear(format('exchange/parked/%s', v_message.number)) where v_message.state = 'parked';
    perform alerts.clear(format('exchange/corrupt/%s', v_message.number)) where v_message.state = 'parked';
    update exchange.message m
    set state = 'queued', folder = 'Messages', failures = 0, expiries = 0, available_at = null, error = null,
        finished_at = null, process_id = null
    where m.number = v_message.number returning m.* into v_message;
  elsif v_message.state <> 'queued' then
    return jsonb_build_object('status', 'CONFLICT', 'state', v_message.state);
  end if;
  return jsonb_build_object('status', 'OK', 'state', v_message.state, 'moves', exchange._moves_of(v_message.number));
end $$;
