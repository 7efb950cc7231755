-- Queues as Celery declares, measures, empties and deletes them.

-- Creates a queue unless it exists.  A temporary one belongs to the session that creates it, until broker.adopt_queue.
-- Locks: an advisory lock on the name, to the end of the transaction.
create or replace function broker.declare_queue(
  qname text, is_temporary boolean default false, message_ttl interval default null, expires_after interval default null)
returns broker.queue
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue;
  v_id    integer;
begin
  v_queue := broker._queue(qname);
  if v_queue.id is null or v_queue.is_temporary then
    perform pg_advisory_xact_lock(hashtext('broker.queue'), hashtext(qname));
    v_queue := broker._queue(qname);
  end if;
  if v_queue.id is null then
    v_id := nextval(pg_get_serial_sequence('broker.queue', 'id'));
    insert into broker.queue (id, name, bus_name, is_temporary, message_ttl, expires_after) overriding system value
    values (v_id, qname,
            case when declare_queue.is_temporary then mbus.create_temporary_queue('text') else broker._bus_name(qname, v_id) end,
            declare_queue.is_temporary, declare_queue.message_ttl, declare_queue.expires_after)
    returning * into v_queue;
    if not v_queue.is_temporary then
      perform broker._create_bus_queue(v_queue.bus_name);
    end if;
  elsif v_queue.is_temporary and (mbus._temporary_queue(v_queue.bus_name)).name is null then
    -- The session of the temporary queue has ended; the bindings stay.
    update broker.queue q set bus_name = mbus.create_temporary_queue('text'), used_at = mbus.now()
    where q.id = v_queue.id returning * into v_queue;
  elsif v_queue.expires_after is not null then
    perform broker.touch(array[v_queue.id]);
  end if;
  return v_queue;
end $$;

-- Returns a queue, null if it does not exist.
create or replace function broker.find_queue(qname text) returns broker.queue
language sql stable security definer set search_path from current as $$ select broker._queue(qname) $$;

-- Records that these queues are in use; writes at most four times per expires_after.
create or replace function broker.touch(ids integer[]) returns void
language sql security definer set search_path from current as $$
  update broker.queue q set used_at = mbus.now()
  where q.id = any (ids) and q.expires_after is not null and q.used_at < mbus.now() - q.expires_after / 4
$$;

-- Makes this session the consumer of a temporary queue.
create or replace function broker.adopt_queue(qname text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue := broker._queue(qname);
begin
  if v_queue.is_temporary then
    update mbus.temporary_queue t set session = mbus._register_session(), pid = pg_backend_pid()
    where t.name = v_queue.bus_name and t.pid <> pg_backend_pid();
  end if;
end $$;

-- Creates the bus queue of a priority.
create or replace function broker.add_level(qname text, level integer) returns broker.queue
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue;
begin
  perform pg_advisory_xact_lock(hashtext('broker.queue'), hashtext(qname));
  v_queue := broker._queue(qname);
  if v_queue.id is not null and not v_queue.is_temporary and level <> all (v_queue.levels) and level between 1 and 9 then
    perform broker._create_bus_queue(broker._level_name(v_queue.bus_name, level));
    update broker.queue q set levels = array(select l from unnest(q.levels || level::smallint) l order by l desc)
    where q.id = v_queue.id returning * into v_queue;
    -- Consumers read their queue again.
    perform pg_notify('mbus', v_queue.bus_name || '!');
  end if;
  return v_queue;
end $$;

-- Returns how many messages are ready.
create or replace function broker.size(qname text) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue := broker._queue(qname);
begin
  if v_queue.id is null then return 0; end if;
  if v_queue.is_temporary then
    return (select count(*) from (
      select from mbus.tempq_0 where destination = v_queue.bus_name union all
      select from mbus.tempq_1 where destination = v_queue.bus_name union all
      select from mbus.tempq_2 where destination = v_queue.bus_name) waiting);
  end if;
  return (select coalesce(sum(s.ready), 0) from mbus.status s where s.queue = any (broker._bus_names(v_queue)));
end $$;

-- Returns the delayed messages of these queues, the earliest first.
create or replace function broker.delayed(qnames text[], amount integer) returns table (queue text, data text)
language sql stable security definer set search_path from current as $$
  select k.name, d.data_text
  from broker.queue k
  cross join unnest(broker._bus_names(k)) b(name)
  join mbus.queue q on q.name = b.name
  cross join lateral (
    select w.due_at, w.data_text from mbus.delayed w
    where w.queue_id = q.id and (w.expires is null or w.expires > mbus.now())
    order by w.due_at limit amount) d
  where k.name = any (qnames) and not k.is_temporary
  order by d.due_at limit amount
$$;

-- Removes ready and delayed messages and returns their number.  Leased messages stay.
create or replace function broker.purge(qname text) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue := broker._queue(qname);
  v_name  text;
  v_count bigint;
  v_total bigint := 0;
begin
  if v_queue.id is null or v_queue.is_temporary then return 0; end if;
  -- Delayed messages must not be moved meanwhile, see mbus._rotate_delayed.
  perform mbus._lock_triggers();
  foreach v_name in array broker._bus_names(v_queue) loop
    loop
      v_count := mbus.purge(v_name);
      v_total := v_total + v_count;
      exit when v_count = 0;
    end loop;
    delete from mbus.delayed d using mbus.queue q where q.name = v_name and d.queue_id = q.id;
    get diagnostics v_count = row_count;
    v_total := v_total + v_count;
  end loop;
  return v_total;
end $$;

-- Deletes a queue with its messages and bindings; an unknown queue is not an error.
create or replace function broker.delete_queue(qname text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue broker.queue;
  v_name  text;
begin
  perform pg_advisory_xact_lock(hashtext('broker.queue'), hashtext(qname));
  v_queue := broker._queue(qname);
  if v_queue.id is null then return; end if;
  delete from broker.queue q where q.id = v_queue.id;
  if v_queue.is_temporary then
    delete from mbus.temporary_queue t where t.name = v_queue.bus_name;
    return;
  end if;
  foreach v_name in array broker._bus_names(v_queue) loop
    perform mbus.drop_queue(v_name);
  end loop;
end $$;
