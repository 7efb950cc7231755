-- Posts a message to every queue that an exchange and a routing key select, notifies the consumers that wait, and
-- returns the number of queues.  Temporary queues whose session has ended are ignored.
create or replace function broker.publish(
  exchange text, routing_key text, data text, level integer default 0, delayed_until timestamptz default null,
  expires timestamptz default null)
returns integer
language plpgsql security definer set search_path from current as $$
declare
  v_queue   broker.queue;
  v_count   integer := 0;
  v_expires timestamptz;
begin
  for v_queue in select * from broker._route($1, $2) loop
    v_expires := least($6, greatest($5, mbus.now()) + v_queue.message_ttl);
    if v_queue.is_temporary then
      continue when (mbus._temporary_queue(v_queue.bus_name)).name is null;
      perform mbus.post(v_queue.bus_name, $3, null, null, null, v_expires);
    else
      if $4 > 0 and $4 <> all (v_queue.levels) then
        v_queue := broker.add_level(v_queue.name, $4);
      end if;
      perform mbus.post(broker._level_name(v_queue.bus_name, $4), $3, null, null, $5, v_expires);
    end if;
    perform broker.wake(v_queue.id);
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

create or replace function broker._route(p_exchange text, p_routing_key text) returns setof broker.queue
language plpgsql stable rows 1 set search_path from current as $$
declare
  v_exchange broker.exchange;
begin
  if p_exchange = '' then
    return query select q.* from broker.queue q where q.name = p_routing_key;
    return;
  end if;
  select * into v_exchange from broker.exchange e where e.name = p_exchange;
  if v_exchange.kind = 'direct' then
    return query
    select q.* from broker.binding b join broker.queue q on q.id = b.queue_id
    where b.exchange_id = v_exchange.id and b.routing_key = p_routing_key;
  else
    return query
    select q.* from broker.queue q
    where q.id in (select b.queue_id from broker.binding b
                   where b.exchange_id = v_exchange.id and (v_exchange.kind = 'fanout' or p_routing_key ~ b.pattern));
  end if;
end $$;
