-- Opens an inlet into a queue.  A queue that does not exist is created if its payload is given.  Idempotent.
-- Errors: MB001, MR002 the name belongs to another inlet, MR004 the queue has another payload.
create or replace function bridge.open_inlet(p_name text, p_source text, p_queue text, p_payload text default null)
returns void
language plpgsql security definer set search_path from current as $$
declare
  v_inlet bridge.inlet;
begin
  if p_payload is not null and not exists (select from mbus.queue q where q.name = p_queue) then
    perform mbus.create_queue(p_queue, payload => p_payload::regtype);
  end if;
  if bridge._payload(p_queue) <> coalesce(p_payload, bridge._payload(p_queue)) then
    raise exception 'queue "%" has payload %, the messages of the bridge have %', p_queue, bridge._payload(p_queue), p_payload
      using errcode = 'MR004', hint = 'Both queues of a bridge need the same payload; choose another with --queue-at-target.';
  end if;
  insert into bridge.inlet (name, source, queue) values (p_name, p_source, p_queue)
  on conflict on constraint inlet_is_unique do nothing;
  v_inlet := bridge._inlet(p_name, p_source);
  if v_inlet.queue <> p_queue then
    raise exception 'an inlet "%" exists already and leads to queue "%"', p_name, v_inlet.queue
      using errcode = 'MR002', hint = 'Choose another name, or remove it with postroad bridge remove.';
  end if;
end $$;

-- Closes an inlet and removes its part of the ledger: a message that arrives again afterwards is posted again.
create or replace function bridge.close_inlet(p_name text, p_source text) returns boolean
language sql security definer set search_path from current as $$
  with gone as (delete from bridge.inlet i where i.name = p_name and i.source = p_source returning 1) select exists (select from gone)
$$;

-- Keeps a message of a broker that cannot be posted, in the transaction that would have posted it.
create or replace function bridge.refuse(
  p_inlet text, p_source text, p_message_id text, p_error text, p_headers text, p_body bytea) returns void
language sql security definer set search_path from current as $$
  insert into bridge.refused (inlet_id, refused_at, message_id, error, headers, body)
  values ((bridge._inlet(p_inlet, p_source)).id, bridge.now(), p_message_id, p_error, p_headers, p_body)
$$;

-- The offset of a stream up to which everything has arrived; null before the first.
create or replace function bridge.position(p_inlet text, p_source text) returns bigint
language sql stable security definer set search_path from current as $$
  select a.position from bridge.arrived a
  where a.inlet_id = (bridge._inlet(p_inlet, p_source)).id and a.position is not null order by a.id desc limit 1
$$;

-- Records how many messages wait at the broker; deletes old batches, except the last position.
create or replace function bridge.note_waiting(p_inlet text, p_source text, p_waiting bigint, p_keep interval default '1 hour')
returns void
language plpgsql security definer set search_path from current as $$
declare
  v_inlet constant bridge.inlet := bridge._inlet(p_inlet, p_source);
begin
  insert into bridge.arrived (inlet_id, arrived_at, waiting) values (v_inlet.id, bridge.now(), p_waiting);
  delete from bridge.arrived a where a.inlet_id = v_inlet.id and a.arrived_at < bridge.now() - p_keep
    and a.id < (select max(b.id) from bridge.arrived b where b.inlet_id = v_inlet.id and (b.position is not null or a.position is null));
end $$;
