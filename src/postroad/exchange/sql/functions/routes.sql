-- Adds a route between the bus and the mailboxes; the same id again changes it.  Errors: MX060.
create or replace function exchange.add_route(p_id text, p_direction text, p_queue text, p_database text, p_recipient text)
returns exchange.route
language plpgsql volatile set search_path from current as $$
declare
  v_route exchange.route;
begin
  if not exists (select from mbus.queue q where q.name = p_queue) then
    raise exception 'there is no queue %', quote_literal(p_queue)
      using errcode = 'MX060', hint = format('Create it: postroad bus create %s --payload jsonb', p_queue);
  end if;
  insert into exchange.route (id, direction, queue, database_id, recipient)
  values (p_id, p_direction, p_queue, p_database, p_recipient)
  on conflict (id) do update
  set direction = excluded.direction, queue = excluded.queue, database_id = excluded.database_id, recipient = excluded.recipient
  returning * into v_route;
  return v_route;
end $$;

create or replace function exchange.remove_route(p_id text) returns boolean
language sql volatile set search_path from current as $$
  with gone as (delete from exchange.route r where r.id = p_id returning r.id)
  select exists (select from gone)
$$;

-- Posts a reply to a queue and acknowledges it, both or neither.  The post belongs to the trace of the message that the reply answers,
-- otherwise to that of the request that delivered it.  Returns false if the reply was already acknowledged.
create or replace function exchange.post_reply(p_epoch bigint, p_number bigint, p_queue text, p_payload jsonb) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  v_reply exchange.message;
  v_trace text;
begin
  perform exchange._enter(p_epoch);
  update exchange.message m set state = 'done', folder = 'Log', finished_at = exchange.now()
  where m.number = p_number and m.state = 'waiting' returning m.* into v_reply;
  if not found then return false; end if;
  select a.traceparent into v_trace from exchange.process_file f join exchange.message a on a.number = f.number
  where f.process_id = v_reply.process_id and a.id = v_reply.reply_to order by a.number limit 1;
  v_trace := coalesce(v_trace, v_reply.traceparent);
  if (select q.payload from mbus.queue q where q.name = p_queue) = 'jsonb' then
    perform mbus.post(p_queue, p_payload, mbus.trace_headers(v_trace));
  else
    perform mbus.post(p_queue, p_payload::text, mbus.trace_headers(v_trace));
  end if;
  return true;
end $$;
