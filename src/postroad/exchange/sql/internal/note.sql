-- Records that a state was entered: in the history, and as an event on the bus, in the same transaction.
create or replace function exchange._note(p_process exchange.process, p_actor text, p_note text) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_at constant timestamptz := exchange.now();
begin
  insert into exchange.history (process_id, state, at, actor, note)
  values (p_process.id, p_process.state, v_at, p_actor, p_note);
  perform mbus.post_exchange_events(
    jsonb_build_object('process', p_process.id, 'database', p_process.database_id, 'recipient', p_process.recipient,
                       'client', p_process.client_id, 'state', p_process.state, 'outcome', p_process.outcome,
                       'at', v_at, 'actor', p_actor, 'note', p_note),
    mbus.trace_headers(p_process.traceparent), null, null, v_at + (select s.events_kept from exchange.server s));
end $$;
