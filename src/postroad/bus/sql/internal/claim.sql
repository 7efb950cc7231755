-- Reads messages without taking them, and locks some of them, for dyn_consume and run_on_<q>. Expressions and statements of callers never
-- run here, because these functions have the owner's permissions.

-- The queue, if the session's user may take from it as this consumer.
create or replace function mbus._check_take(p_queue text, p_consumer text) returns mbus.queue
language plpgsql volatile set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(p_queue);
  v_consumer mbus.consumer := mbus._consumer(v_queue, coalesce(p_consumer, 'null'));
begin
  perform mbus._check_isolation();
  if not has_function_privilege(session_user, format('mbus.%I(integer)', 'consumen_' || p_queue || '_by_' || p_consumer), 'execute') then
    raise exception 'user "%" may not take messages from queue "%"', session_user, p_queue
      using errcode = 'MB013', hint = format('Grant role %I.', mbus._consume_role(p_queue, p_consumer));
  end if;
  return v_queue;
end $$;

-- The tables of a consumer in the order in which its messages are taken.
create or replace function mbus._tables_in_order(p_queue mbus.queue, p_consumer text)
returns table (ready_table text, payload_table text, rows text)
language sql volatile set search_path from current as $$
  select t.ready_table, t.payload_table, mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table)
  from mbus._tables(p_queue) t
  join generate_series(mbus._figure(p_queue.name, 'head'), mbus._figure(p_queue.name, 'tail')) g on t.slot = g % p_queue.slots
  where t.consumer = p_consumer and mbus._hint(t.ready_table) < mbus._drained()
  order by array_position('{high,normal,low}', t.lane), g
$$;

-- The first ready messages of a consumer, in order, as parcels.  Some may be locked by other transactions.
create or replace function mbus._read_messages(p_queue mbus.queue, p_consumer text, p_amount integer) returns setof mbus.parcel
language plpgsql rows 100 set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_table   record;
  v_missing bigint := p_amount;
  v_found   bigint;
begin
  perform mbus._attend(p_queue.id, (select c.id from mbus.consumer c where c.queue_id = p_queue.id and c.name = p_consumer), p_amount);
  -- Retries of groups come first, as in the functions that take messages.
  return query select d.number, d.added, d.expires, d.headers, d.properties, d.trail, null::integer[],
         d.data_hstore, d.data_jsonb, d.data_text, d.data_bytea
  from mbus.delayed d join mbus.consumer c on c.id = d.consumer_id and c.queue_id = p_queue.id and c.name = p_consumer
  where d.queue_id = p_queue.id and d.group_name is not null and d.due_at <= (select mbus.now())
    and (d.expires is null or d.expires > mbus.now())
  order by d.number limit v_missing;
  get diagnostics v_found = row_count;
  v_missing := v_missing - v_found;
  for v_table in select * from mbus._tables_in_order(p_queue, p_consumer) loop
    exit when v_missing <= 0;
    return query execute format($query$
      select coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, null::integer[], %s
      from %s r join mbus.%I g on g.id = r.id
      where r.id >= $1 and r.token is null and (g.expires is null or g.expires > mbus.now())
      order by r.id limit $2$query$,
      mbus._queue_values(p_queue) ->> 'columns', v_table.rows, v_table.payload_table)
    using mbus._hint(v_table.ready_table), v_missing;
    get diagnostics v_found = row_count;
    v_missing := v_missing - v_found;
  end loop;
end $$;

-- Locks a ready message until the end of the transaction.  False if another transaction has locked it, if it no longer exists, or if its
-- group forbids it.
-- Locks: the group's advisory lock, then the row, both without waiting.
create or replace function mbus._claim_number(p_queue mbus.queue, p_consumer_id integer, p_number bigint, p_group text) returns boolean
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_table record;
  v_id    bigint;
begin
  if p_group is not null then
    if not pg_try_advisory_xact_lock(p_consumer_id, hashtext(p_group)) then return false; end if;
    -- A separate statement, so that its snapshot includes the work of the group's last holder.
    if p_number is distinct from (
      select m.number from mbus._read_messages(p_queue, (select c.name from mbus.consumer c where c.id = p_consumer_id), 1000) m
      where m.headers -> 'group' = p_group limit 1) then
      return false;    -- it is not the first of its group
    end if;
    if not mbus._is_group_leased(p_consumer_id, p_group) then
      perform from mbus.delayed d
      where d.consumer_id = p_consumer_id and d.group_name = p_group and d.number = p_number and d.due_at <= mbus.now()
      for update skip locked;
      if found then return true; end if;
    end if;
    if mbus._is_group_held(p_consumer_id, p_group) then return false; end if;
  end if;
  if mbus._is_cursor(p_consumer_id) and not pg_try_advisory_xact_lock(p_consumer_id, 0) then
    return false;
  end if;
  for v_table in
    select mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table) as rows from mbus._tables(p_queue) t
    where t.consumer_id = p_consumer_id
  loop
    -- A row of a log is not locked: the lock on the cursor is enough.
    execute format('select s.id from %s s where (s.id = $1 and s.origin is null or s.origin = $1) and s.token is null %s', v_table.rows,
                   case when not mbus._is_cursor(p_consumer_id) then 'for update skip locked' end)
      into v_id using p_number;
    if v_id is not null then return true; end if;
  end loop;
  return false;
end $$;

-- For dyn_consume: the first ready messages in the form in which their consumer would get them.
create or replace function mbus._show(p_queue text, p_consumer text, p_amount integer) returns setof mbus.qt_model
language plpgsql rows 100 security definer set search_path from current as $$
declare
  v_queue mbus.queue := mbus._check_take(p_queue, p_consumer);
begin
  return query select p.number, p.added, mbus._iid(p_queue, p.number), (p.trail ->> 'delayed_until')::timestamptz, p.expires,
         null::integer[], mbus._deliver(mbus._constants(p_queue), p.added, p.headers, p.trail), p.properties, p.data_hstore
  from mbus._read_messages(v_queue, p_consumer, p_amount) p;
end $$;

create or replace function mbus._constants(p_queue text) returns hstore
language sql stable set search_path from current as $$
  select hstore(array['seenby', 'source_db', 'destination'],
                array[array[current_database()::text]::text, current_database()::text, p_queue])
$$;

-- The same lock by iid.
create or replace function mbus._claim(p_queue text, p_consumer text, p_iid text, p_group text) returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_queue mbus.queue := mbus._check_take(p_queue, p_consumer);
begin
  return mbus._claim_number(v_queue, (mbus._consumer(v_queue, p_consumer)).id, mbus._number(p_queue, p_iid), p_group);
end $$;

-- For run_on_<q>: locks up to a number of ready messages, only the first of each group, and returns their iids.
create or replace function mbus._claim_ready(p_queue text, p_consumer text, p_amount integer) returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._check_take(p_queue, p_consumer);
  v_consumer constant integer := (mbus._consumer(v_queue, p_consumer)).id;
  v_parcel   record;
  v_iids     text[] := '{}';
begin
  for v_parcel in select p.number, p.headers -> 'group' as group_name from mbus._read_messages(v_queue, p_consumer, p_amount * 10) p loop
    exit when cardinality(v_iids) >= p_amount;
    if mbus._claim_number(v_queue, v_consumer, v_parcel.number, v_parcel.group_name) then
      v_iids := v_iids || mbus._iid(p_queue, v_parcel.number);
    end if;
  end loop;
  return v_iids;
end $$;
