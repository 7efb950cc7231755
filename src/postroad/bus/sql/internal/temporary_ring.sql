-- The ring of three tables behind all temporary queues.  The uses of tables are numbered; the table with the newest use is the tail and is
-- written to, older ones are sealed and only read until they are empty.

-- Both functions are created once per table, because static SQL keeps its plan and uses only one table.
do $ring$
begin
  for v_slot in 0 .. 2 loop
    -- Inserts nothing if the use of the table has ended since the tail was read.  It cannot end while this insert holds its lock, so the
    -- insert is all or nothing.
    execute format($file$
      create or replace function mbus._tempq_put_%1$s(p_life bigint, p_ids bigint[], p_names text[], p_parcels mbus.parcel[])
      returns boolean
      language plpgsql set search_path from current as $function$
      begin
        insert into mbus.tempq_%1$s (id, destination, added, delayed_until, expires, headers, properties,
                                data_hstore, data_jsonb, data_text, data_bytea)
        select m.id, m.name, m.added, (m.trail ->> 'delayed_until')::timestamptz, m.expires, m.headers, m.properties,
               m.data_hstore, m.data_jsonb, m.data_text, m.data_bytea
        from unnest(p_ids, p_names, p_parcels)
          m(id, name, number, added, expires, headers, properties, trail, recipients,
            data_hstore, data_jsonb, data_text, data_bytea)
        where pg_sequence_last_value('mbus.tempq_life_%1$s') = p_life;
        return found;
      end $function$ $file$, v_slot);

    -- Only the owner takes from a queue, so rows need no lock. An empty table is only read: while a
    -- transaction writes to it, it cannot be sealed.
    execute format($file$
      create or replace function mbus._tempq_take_%1$s(p_name text, p_amount integer) returns setof mbus.parcel
      language plpgsql rows 100 set search_path from current
      set enable_seqscan = off set jit = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $function$
      declare
        v_now  constant timestamptz := mbus.now();
        v_rows constant tid[] := array(
          select s.ctid from mbus.tempq_%1$s s
          where s.destination = p_name and (s.expires is null or s.expires > v_now)
            and (s.delayed_until is null or s.delayed_until <= v_now)
          order by s.id limit p_amount);
      begin
        if v_rows = '{}' then return; end if;
        return query
        with gone as (delete from mbus.tempq_%1$s s where s.ctid = any (v_rows) and s.destination = p_name returning s.*)
        select g.id, g.added, g.expires, g.headers, g.properties,
               case when g.delayed_until is not null then jsonb_build_object('delayed_until', g.delayed_until) end,
               null::integer[], g.data_hstore, g.data_jsonb, g.data_text, g.data_bytea
        from gone g order by g.id;
      end $function$ $file$, v_slot);
  end loop;
end $ring$;

-- Puts parcels on temporary queues, one name per parcel, and returns their numbers.
create or replace function mbus._temporary_put(p_names text[], p_parcels mbus.parcel[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_ids  constant bigint[] := array(select nextval('mbus.tempq_position') from generate_series(1, cardinality(p_names)));
  v_tail bigint;
  v_done boolean := cardinality(p_names) = 0;
begin
  while not v_done loop
    v_tail := pg_sequence_last_value('mbus.tempq_tail');
    v_done := case v_tail % 4
      when 0 then mbus._tempq_put_0(v_tail / 4, v_ids, p_names, p_parcels)
      when 1 then mbus._tempq_put_1(v_tail / 4, v_ids, p_names, p_parcels)
      else mbus._tempq_put_2(v_tail / 4, v_ids, p_names, p_parcels) end;
  end loop;
  return v_ids;
end $$;

-- Returns the tables in use, the oldest first.
create or replace function mbus._tempq_slots() returns setof integer
language sql volatile set search_path from current as $$
  select slot from (values (0, pg_sequence_last_value('mbus.tempq_life_0')), (1, pg_sequence_last_value('mbus.tempq_life_1')),
                           (2, pg_sequence_last_value('mbus.tempq_life_2'))) s(slot, life)
  where life > 0 order by life
$$;

-- Takes messages in order of posting, and waits for the first one.  Each table is read with a separate snapshot, so a message
-- committed between two reads may come after its successor, once, when the ring rotates.  The pauses are real time, and can be
-- cancelled like any statement.
create or replace function mbus._await_temporary(p_name text, p_amount integer, p_wait interval) returns setof mbus.parcel
language plpgsql rows 100 set search_path from current as $$
declare
  v_missing integer := p_amount;
  v_found   bigint;
  v_slot    integer;
  v_until   timestamptz;
  v_left    double precision;
  v_pause   double precision := 0.001;
begin
  perform mbus._check_amount(p_amount);
  perform mbus._check_isolation();
  perform mbus._check_interval('wait', p_wait, false, 'wait must be between zero and 1000 years.');
  v_until := clock_timestamp() + coalesce(p_wait, '0');
  loop
    for v_slot in select * from mbus._tempq_slots() loop
      exit when v_missing <= 0;
      case v_slot
        when 0 then return query select * from mbus._tempq_take_0(p_name, v_missing);
        when 1 then return query select * from mbus._tempq_take_1(p_name, v_missing);
        else return query select * from mbus._tempq_take_2(p_name, v_missing);
      end case;
      get diagnostics v_found = row_count;
      v_missing := v_missing - v_found;
    end loop;
    exit when v_missing < p_amount or p_amount = 0;
    v_left := extract(epoch from v_until - clock_timestamp());
    exit when v_left <= 0;
    perform pg_sleep(least(v_pause, v_left));
    v_pause := least(v_pause * 1.5, 0.05);
  end loop;
end $$;

-- Takes messages if the session may.  The right to copies of a queue may have been revoked since the temporary consumer was created.
create or replace function mbus._consume_temporary(p_name text, p_payload text, p_amount integer, p_wait interval) returns setof mbus.parcel
language plpgsql volatile rows 100 set search_path from current as $$
declare
  v_queue mbus.temporary_queue;
begin
  select * into v_queue from mbus.temporary_queue q where q.name = p_name;
  if not found then perform mbus._refuse_gone(p_name); end if;
  if v_queue.pid <> pg_backend_pid() or v_queue.session is distinct from mbus._session() then
    raise exception 'temporary queue "%" belongs to another session', p_name
      using errcode = 'MB013', hint = 'Only the session that created a temporary queue can take from it.';
  end if;
  perform mbus._check_consume(q, 'default')
  from mbus.follower f join mbus.queue q on q.id = f.queue_id where f.temporary_name = p_name;
  if v_queue.payload is distinct from p_payload then
    raise exception 'temporary queue "%" carries %', p_name, coalesce(v_queue.payload, 'answers')
      using errcode = 'MB019', hint = case v_queue.payload
        when 'hstore' then 'Call mbus.consume_temporary.'
        else 'Call mbus.' || coalesce('consume_temporary_' || v_queue.payload, 'replies') || '.' end;
  end if;
  return query select * from mbus._await_temporary(p_name, p_amount, p_wait);
end $$;

create or replace function mbus._deliver_temporary(p_name text, p_parcel mbus.parcel) returns hstore
language sql stable set search_path from current as $$
  select mbus._deliver(mbus._constants(p_name), p_parcel.added, p_parcel.headers, null)
$$;
