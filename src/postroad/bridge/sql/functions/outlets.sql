-- Opens an outlet: creates a consumer of the queue, which receives the messages that match the selector from now on.  With
-- p_consumer an existing consumer is used instead.  Idempotent.  Errors: MB001, MB002, MB008 selector, MR002.
create or replace function bridge.open_outlet(
  p_name text, p_queue text, p_target text, p_selector text default null, p_consumer text default null)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_consumer constant text := coalesce(p_consumer, 'to_' || p_name);
  v_outlet   bridge.outlet;
begin
  perform bridge._payload(p_queue);
  perform pg_advisory_xact_lock(bridge._lock_class(), hashtext(p_name));
  select * into v_outlet from bridge.outlet where name = p_name;
  if found then
    if v_outlet.queue <> p_queue or v_outlet.consumer <> v_consumer then
      raise exception 'an outlet "%" exists already and is another one', p_name
        using errcode = 'MR002', hint = 'Choose another name, or remove it with postroad bridge remove.';
    end if;
    -- The target is only displayed: its address may change although it is the same database.
    update bridge.outlet o set target = p_target where o.id = v_outlet.id and o.target <> p_target;
    return v_consumer;
  end if;
  if p_consumer is null and not exists (
       select from mbus.consumer c join mbus.queue q on q.id = c.queue_id where q.name = p_queue and c.name = v_consumer) then
    perform mbus.create_consumer(p_queue, v_consumer, p_selector);
  elsif p_consumer is not null then
    perform mbus._consumer(mbus._queue(p_queue), p_consumer);
  end if;
  insert into bridge.outlet (name, queue, consumer, target) values (p_name, p_queue, v_consumer, p_target);
  return v_consumer;
end $$;

-- Closes an outlet.  Drops its consumer with the messages that it has not sent, unless the consumer existed before.
create or replace function bridge.close_outlet(p_name text) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_outlet bridge.outlet;
begin
  delete from bridge.outlet o where o.name = p_name returning * into v_outlet;
  if v_outlet.consumer = 'to_' || p_name then
    perform mbus.drop_consumer(v_outlet.queue, v_outlet.consumer);
  end if;
  return v_outlet.id is not null;
end $$;

-- Pauses, resumes or drains a bridge.  A paused bridge takes nothing; a draining bridge takes messages until none is left, and is then
-- drained.  Returns the former state.  Errors:  MR001, MR003.
create or replace function bridge.set_state(p_name text, p_state text) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_state constant text := bridge.state(p_name);
begin
  if p_state not in ('running', 'paused', 'draining', 'drained') then
    raise exception 'unknown state: "%"', p_state using errcode = 'MR003', hint = 'Use running, paused, draining or drained.';
  end if;
  -- Only a draining bridge becomes drained: an operator may have resumed or paused it meanwhile.
  update bridge.outlet o set state = p_state
  where o.name = p_name and o.state <> p_state and (p_state <> 'drained' or o.state = 'draining');
  if not found then
    update bridge.inlet i set state = p_state
    where i.name = p_name and i.source like 'rabbitmq:%' and i.state <> p_state and (p_state <> 'drained' or i.state = 'draining');
  end if;
  return v_state;
end $$;

create or replace function bridge.state(p_name text) returns text
language sql stable security definer set search_path from current as $$
  select coalesce(
    (select o.state from bridge.outlet o where o.name = p_name),
    (select i.state from bridge.inlet i where i.name = p_name and i.source like 'rabbitmq:%' order by i.id limit 1),
    (bridge._outlet(p_name)).state)
$$;

-- Records the problem that stops a bridge, null when it works again.  The row is written only when the problem changes.
create or replace function bridge.note_problem(p_name text, p_problem text) returns void
language sql security definer set search_path from current as $$
  update bridge.outlet o set problem = left(p_problem, 1000), problem_at = case when p_problem is not null then bridge.now() end
  where o.name = p_name and o.problem is distinct from left(p_problem, 1000);
  update bridge.inlet i set problem = left(p_problem, 1000), problem_at = case when p_problem is not null then bridge.now() end
  where i.name = p_name and i.source like 'rabbitmq:%' and i.problem is distinct from left(p_problem, 1000);
$$;

-- Locks a connection of a bridge until the session ends, so no transaction of an earlier holder is open; false while another process has it.
create or replace function bridge.hold(p_name text, p_hand integer) returns boolean
language sql security definer set search_path from current as $$
  select pg_try_advisory_lock(hashtext('bridge.hold'), hashtext(p_name || ' ' || p_hand))
$$;

-- Whether a process runs a bridge: it holds the lock of its first connection.
create or replace function bridge._is_held(p_name text) returns boolean
language sql stable set search_path from current as $$
  select exists (
    select from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2 and l.granted
      and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid = (hashtext('bridge.hold')::bigint & 4294967295)::oid
      and l.objid = (hashtext(p_name || ' 0')::bigint & 4294967295)::oid)
$$;

-- The name of this database and of its node.
create or replace function bridge.hello() returns table (database text, node text)
language sql stable security definer set search_path from current as $$
  select current_database()::text, n.name from mbus.node n where n.is_only
$$;
