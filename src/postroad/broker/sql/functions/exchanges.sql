-- Exchanges and bindings.

-- Creates an exchange unless it exists, and returns its kind: that of its first declaration.
create or replace function broker.declare_exchange(exchange text, kind text) returns text
language sql security definer set search_path from current as $$
  insert into broker.exchange (name, kind) values ($1, $2) on conflict do nothing;
  select e.kind from broker.exchange e where e.name = $1
$$;

-- Returns the kind of an exchange, null if it does not exist.
create or replace function broker.find_exchange(exchange text) returns text
language sql stable security definer set search_path from current as $$
  select e.kind from broker.exchange e where e.name = $1
$$;

-- Deletes an exchange and its bindings; the queues stay.
create or replace function broker.delete_exchange(exchange text) returns void
language sql security definer set search_path from current as $$
  delete from broker.exchange e where e.name = $1
$$;

-- Binds a queue to an exchange.  In a topic key * matches one word and # any number of words.
create or replace function broker.bind(qname text, exchange text, routing_key text) returns void
language sql security definer set search_path from current as $$
  insert into broker.binding (exchange_id, queue_id, routing_key, pattern)
  select e.id, (broker._queue(qname)).id, routing_key, case when e.kind = 'topic' then broker._pattern(routing_key) end
  from broker.exchange e
  where e.name = $2 and (broker._queue(qname)).id is not null
  on conflict do nothing
$$;

create or replace function broker.unbind(qname text, exchange text, routing_key text) returns void
language sql security definer set search_path from current as $$
  delete from broker.binding b using broker.exchange e
  where e.id = b.exchange_id and e.name = $2
    and b.queue_id = (broker._queue(qname)).id and b.routing_key = $3
$$;

-- Returns the bindings of an exchange; without a name, those of all exchanges.
create or replace function broker.bindings(exchange text default null)
returns table (queue text, source text, routing_key text)
language sql stable security definer set search_path from current as $$
  select q.name, e.name, b.routing_key
  from broker.binding b join broker.exchange e on e.id = b.exchange_id join broker.queue q on q.id = b.queue_id
  where $1 is null or e.name = $1
$$;
