-- Queues by name, and names for the bus.

create or replace function broker._queue(p_name text) returns broker.queue
language sql stable set search_path from current as $$
  select q from broker.queue q where q.name = p_name
$$;

-- The name of a queue in the bus: the readable part of its name and its number, short enough for the names of its
-- roles.  The full name is found in broker.queue.
create or replace function broker._bus_name(p_name text, p_id integer) returns text
language sql stable set search_path from current as $$
  -- A role is called mbus_<db>_consume_<queue>_by_default and has 63 bytes at most; two are left for a level.
  select 'k' || coalesce('_' || nullif(left(btrim(regexp_replace(lower(p_name), '[^a-z0-9]+|by', '_', 'g'), '_'),
                                            greatest(36 - octet_length(current_database()) - length(p_id::text) - 3, 0)), ''), '')
      || '_' || p_id
$$;

-- The bus queue of a priority; zero is the queue of messages without priority.
create or replace function broker._level_name(p_bus_name text, p_level integer) returns text
language sql immutable parallel safe
return case p_level when 0 then p_bus_name else p_bus_name || '_' || p_level end;

-- Closes a bus queue to mbus_<db>_user, because its messages are run as tasks.  Unlike mbus.alter_queue it does not
-- require the roles of the queue: declaring a queue is for the owner and mbus_<db>_admin, who need none.
create or replace function broker._close_bus_queue(p_queue mbus.queue) returns void
language plpgsql set search_path from current as $$
begin
  perform mbus._alter(p_queue.id);
  update mbus.queue set is_roles_security_model = true where id = p_queue.id;
  perform mbus._disallow(p.oid, array[mbus._role('user')])
  from mbus._functions(p_queue) n join pg_proc p on p.proname = n.name and p.pronamespace = 'mbus'::regnamespace;
end $$;

create or replace function broker._create_bus_queue(p_bus_name text) returns void
language plpgsql set search_path from current set client_min_messages = warning as $$
begin
  perform mbus.create_queue(qname => p_bus_name, payload => 'text');
  perform broker._close_bus_queue(mbus._queue(p_bus_name));
  -- Returning a message at a shutdown counts as a delivery, so no number of deliveries proves that a task is bad.
  perform mbus.alter_consumer(qname => p_bus_name, cname => 'default', max_attempts => 2147483647);
end $$;

create or replace function broker._bus_names(p_queue broker.queue) returns text[]
language sql immutable set search_path from current as $$
  select array_agg(broker._level_name(p_queue.bus_name, l) order by l desc) from unnest(p_queue.levels || 0::smallint) l
$$;

-- A topic key as a regular expression: * is one word, # any number of them, with the dots that part them.
create or replace function broker._pattern(p_routing_key text) returns text
language plpgsql immutable set search_path from current as $$
declare
  v_text text := regexp_replace(p_routing_key, '([\\^$()\[\]{}+?|])', '\\\1', 'g');
begin
  v_text := replace(replace(v_text, '.', '\.'), '*', '[^.]+');
  if v_text = '#' then return '^.*$'; end if;
  v_text := regexp_replace(v_text, '^#\\\.', '(.*\.)?');
  return '^' || replace(v_text, '\.#', '(\..*)?') || '$';
end $$;
