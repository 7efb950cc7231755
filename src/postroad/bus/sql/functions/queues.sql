-- Creates a queue with the consumer "default" and the roles to use it.
--
-- ncons is the maximum number of slots of its ring; each is created when traffic first needs it.  1 is treated as 2 and more than
-- 256 as 256, with a notice: readers never wait for a slot, so more would not help.  On an existing
-- queue the functions are rebuilt and the messages stay.  It keeps its ncons, with a notice if a different one is
-- given; its payload must be the same.  A plain queue can be restricted to its roles this way, but a restricted one is not made
-- plain: a call with defaults would open it to all users.  See mbus.alter_queue.
-- Errors: MB003 other payload, MB005, MB006, MB007 names, MB011 payload, MB012 ncons, MB013 roles.
create or replace function mbus.create_queue(
  qname text, ncons integer default 8, is_roles_security_model boolean default false, payload regtype default 'hstore') returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue;
  v_position bigint;
  v_figure   text;
begin
  perform mbus._check_name('queue', qname);
  perform mbus._check_length(qname, 'default');
  perform mbus._check_payload(payload);
  if ncons is null or ncons < 1 then
    raise exception 'invalid ncons: %', coalesce(ncons::text, 'null') using errcode = 'MB012', hint = 'Choose between 2 and 256 slots.';
  elsif ncons not between 2 and 256 then
    raise notice 'queue "%" gets % slots', qname, greatest(2, least(256, ncons));
    ncons := greatest(2, least(256, ncons));
  end if;
  perform pg_advisory_xact_lock(mbus._lock_class(), hashtext(qname));
  select * into v_queue from mbus.queue where name = qname;
  if found then
    if v_queue.payload <> payload::text then
      raise exception 'queue "%" exists with payload %', qname, v_queue.payload
        using errcode = 'MB003', hint = 'A payload cannot be changed. Create a queue with another name, or drop this one first.';
    end if;
    if v_queue.slots <> ncons then raise notice 'queue "%" keeps its ncons %', qname, v_queue.slots; end if;
    if v_queue.is_roles_security_model and not create_queue.is_roles_security_model then
      raise notice 'queue "%" keeps its roles', qname
        using hint = format('To make it a plain queue: select mbus.alter_queue(%L, is_roles_security_model => false).', qname);
    end if;
    perform mbus._secure_queue(v_queue.id, create_queue.is_roles_security_model or v_queue.is_roles_security_model);
    return;
  end if;
  perform mbus._check_collision(mbus._queue_functions(qname) || mbus._consumer_functions(qname, 'default'));
  perform mbus._create_role(mbus._post_role(qname), create_queue.is_roles_security_model);
  foreach v_figure in array '{position,head,tail,swept}'::text[] loop
    perform mbus._create_sequence('qs$' || qname || '$' || v_figure);
  end loop;
  insert into mbus.queue (name, payload, slots, is_roles_security_model, position, swept)
  values (qname, payload::oid::regtype::text, ncons, create_queue.is_roles_security_model,
          format('mbus.%I', 'qs$' || qname || '$position')::regclass, format('mbus.%I', 'qs$' || qname || '$swept')::regclass)
  returning * into v_queue;
  -- Numbers of an earlier queue of this name are not used again.
  delete from mbus.dropped_queue d where d.name = qname returning d.position into v_position;
  if found then perform setval(v_queue.position, v_position), setval(v_queue.swept, v_position); end if;
  insert into mbus.consumer (queue_id, name) values (v_queue.id, 'default');
  perform mbus._create_role(mbus._consume_role(qname, 'default'), create_queue.is_roles_security_model);
  perform mbus._create_slot(v_queue, 0);
  perform mbus._generate(v_queue);
end $$;

create or replace function mbus._check_payload(p_payload regtype) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_payload is null or p_payload not in ('hstore'::regtype, 'jsonb'::regtype, 'text'::regtype, 'bytea'::regtype) then
    raise exception 'a queue cannot carry %', coalesce(p_payload::text, 'null')
      using errcode = 'MB011', hint = 'Choose hstore, jsonb, text or bytea.';
  end if;
end $$;

-- Changes a queue; null keeps a setting unchanged.  Messages stay.
--   is_roles_security_model  restricts a plain queue to its own roles, or makes a restricted queue plain
--   retain       keeps messages readable for this time after all consumers have consumed them, see mbus.history; 0 ends it
--   retain_size  keeps at most this many bytes of them; 0: no size limit.  Segments are dropped as a whole
--   track        a property, or a field of a payload of hstore or jsonb, such as order_id: mbus.find finds stored messages by it, and
--                by their trace and correlation.  Three indexes of each table of messages; an empty text drops them
--   schema       a JSON Schema; data that violates it is refused by posts, by the steps of sagas and when a dead message is edited.  {}
--                ends it
-- A queue that retains messages is changed to fanout first, as by a second consumer, and stays fanout.
-- Errors: MB001, MB006 names of roles, MB012 no setting, a negative one or an invalid schema, MB013 roles, MB017 busy.
create or replace function mbus.alter_queue(
  qname text, is_roles_security_model boolean default null, retain interval default null, retain_size bigint default null,
  track text default null, schema jsonb default null) returns void
language plpgsql security definer set search_path from current set lock_timeout = '10s' as $$
declare
  v_queue mbus.queue := mbus._queue(qname);
begin
  if num_nonnulls($2, $3, $4, $5, $6) = 0 or $3 < '0' or $3 > mbus._longest() or $4 < 0 then
    raise exception 'one of is_roles_security_model, retain, retain_size, track and schema must be given; retain and retain_size must not be negative'
      using errcode = 'MB012', hint = 'Nothing was changed.';
  end if;
  if num_nonnulls($3, $4) > 0 then perform mbus._lock_triggers(); end if;    -- see mbus.create_consumer
  if $2 is not null then perform mbus._secure_queue(v_queue.id, $2); end if;
  if num_nonnulls($3, $4, $6) > 0 then
    v_queue := mbus._alter(v_queue.id);
    perform mbus._check_schema($6, case when v_queue.payload <> 'bytea' then $6 end, '$') where $6 is not null;
    update mbus.queue q
    set retain = nullif(coalesce($3, q.retain), '0'), retain_size = nullif(coalesce($4, q.retain_size), 0),
        schema = nullif(coalesce($6, q.schema), '{}')
    where q.id = v_queue.id returning * into v_queue;
    if v_queue.mode = 'direct' and mbus._is_retained(v_queue) then
      v_queue := mbus._fan_out(v_queue);
    end if;
    perform mbus._generate(v_queue);
  end if;
  if $5 is not null then
    perform mbus._alter(v_queue.id);
    update mbus.queue q set track = nullif($5, '') where q.id = v_queue.id returning * into v_queue;
    -- Posts to the ring wait for the locks of the last tables.
    perform mbus._create_links(s.name, v_queue.payload, v_queue.track)
    from (select t.name from mbus._stored_tables(v_queue) t order by t.name like 'qr$%' desc, t.name) s;
  end if;
exception when lock_not_available or deadlock_detected then
  raise exception 'queue "%" is busy: a transaction that posts or takes is open', qname
    using errcode = 'MB017', hint = 'Try again, or find long transactions in pg_stat_activity.';
end $$;

-- Rebuilds the functions of a queue, for all users or for its roles.
create or replace function mbus._secure_queue(p_queue_id integer, p_is_roles_security_model boolean) returns void
language plpgsql set search_path from current as $$
declare
  v_queue mbus.queue := mbus._alter(p_queue_id);
begin
  perform mbus._create_role(mbus._post_role(v_queue.name), p_is_roles_security_model);
  perform mbus._create_role(mbus._consume_role(v_queue.name, c.name), p_is_roles_security_model)
  from mbus.consumer c where c.queue_id = v_queue.id;
  update mbus.queue set is_roles_security_model = p_is_roles_security_model
  where id = v_queue.id returning * into v_queue;
  -- A queue with roles is closed to mbus_<db>_user.
  perform mbus._disallow(p.oid, array[mbus._role('user')])
  from mbus._functions(v_queue) n join pg_proc p on p.proname = n.name and p.pronamespace = 'mbus'::regnamespace;
  perform mbus._generate(v_queue);
end $$;

-- Drops a queue with its messages, consumers, functions, views and roles.  A new one of the same name continues the numbers.
-- Errors: MB001, MB012 sagas that have not ended.
create or replace function mbus.drop_queue(qname text) returns void
language plpgsql security definer set search_path from current set client_min_messages = warning as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_source   integer;
  v_table    text;
  v_consumer text;
  v_figure   text;
begin
  if exists (select from mbus.saga g where g.queue_id = v_queue.id and g.finished_at is null) then
    raise exception 'queue "%" contains the bungs of sagas that have not ended', qname
      using errcode = 'MB012', hint = 'Wait until they end, or roll them back with mbus.cancel_saga.';
  end if;
  delete from mbus.replay r where r.queue_id = v_queue.id;    -- first, see the order of locks in README.md
  delete from mbus.schedule s where s.queue_id = v_queue.id;
  -- Functions of other queues must no longer refer to it.
  perform mbus._lock_triggers();
  for v_source in delete from mbus.follower f where f.destination_id = v_queue.id returning f.queue_id loop
    perform mbus._refollow(mbus._alter(v_source));
  end loop;
  v_queue := mbus._alter((mbus._queue(qname)).id);
  if v_queue.has_waiters then
    perform mbus._lost(v_queue.id, null, array(select distinct w.number from mbus.wait w where w.queue_id = v_queue.id));
  end if;
  perform mbus._drop_limit(v_queue, c.id) from mbus.consumer c where c.queue_id = v_queue.id;
  for v_table in select payload_table from mbus._tables(v_queue) union select ready_table from mbus._tables(v_queue) loop
    execute format('drop sequence if exists mbus.%I, mbus.%I', v_table || '$hint', v_table || '$base');
    execute format('drop table mbus.%I cascade', v_table);
  end loop;
  -- A new queue of this name continues the numbers.  Altering the sequence waits for all transactions that have used it.
  execute format('alter sequence %s no cycle', v_queue.position);
  insert into mbus.dropped_queue as d (name, position) values (qname, pg_sequence_last_value(v_queue.position))
  on conflict (name) do update set position = excluded.position;
  -- The queue's own functions are dropped first, because roles of consumers have permissions on some of them.
  perform mbus._drop_functions(mbus._queue_functions(qname) || ('_view_' || qname));
  for v_consumer in select name from mbus.consumer where queue_id = v_queue.id loop
    perform mbus._drop_functions(mbus._consumer_functions(qname, v_consumer));
    perform mbus._drop_role(mbus._consume_role(qname, v_consumer));
  end loop;
  perform mbus._drop_role(mbus._post_role(qname));
  foreach v_figure in array '{position,head,tail,swept,settled}'::text[] loop
    execute format('drop sequence if exists mbus.%I', 'qs$' || qname || '$' || v_figure);
  end loop;
  perform mbus._delete_messages(v_queue.id, null);
  delete from mbus.queue where id = v_queue.id;
end $$;

-- Deletes messages outside the ring, of a queue or of one consumer that is dropped.  Call it when their tables and
-- sequences are locked: then every transaction that posted or took has ended, and none can begin.
-- The order matters: an ack of a lease, or the release of a blocked message, may just be moving it to delayed.
create or replace function mbus._delete_messages(p_queue_id integer, p_consumer_id integer) returns void
language sql set search_path from current as $$
  delete from mbus.leased l where l.queue_id = p_queue_id and (p_consumer_id is null or l.consumer_id = p_consumer_id);
  delete from mbus.blocked b where b.queue_id = p_queue_id and p_consumer_id is null;
  delete from mbus.delayed d where d.queue_id = p_queue_id and (p_consumer_id is null or d.consumer_id = p_consumer_id);
  delete from mbus.reserved r where r.queue_id = p_queue_id and p_consumer_id is null;
  delete from mbus.dedup d where d.queue_id = p_queue_id and p_consumer_id is null;
  delete from mbus.unique_key k where k.queue_id = p_queue_id and p_consumer_id is null
$$;

create or replace function mbus._drop_functions(p_names text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_functions constant text := (
    select string_agg(oid::regprocedure::text, ', ') from pg_proc where pronamespace = 'mbus'::regnamespace and proname = any (p_names));
begin
  if v_functions is not null then execute format('drop function %s cascade', v_functions); end if;
end $$;
