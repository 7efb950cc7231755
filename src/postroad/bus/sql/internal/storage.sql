-- Creates the tables of a queue: a slot of the ring when rotation first reaches it, a lane with the first message that needs it.
-- Autovacuum only processes tables that outgrew their slot; normal ones are truncated long before.

create or replace function mbus._create_sequence(p_name text) returns void
language plpgsql set search_path from current as $$
begin
  execute format('create sequence mbus.%I minvalue 0 start 0', p_name);
  perform setval(format('mbus.%I', p_name)::regclass, 0);
end $$;

-- The values that a message g of a queue with track may share with others: its business key, its trace, its correlation.
create or replace function mbus._link_expressions(p_payload text, p_track text) returns text[]
language sql immutable set search_path from current as $$
  select array[
    format('"left"(coalesce(g.properties -> %1$L%2$s), 100)', p_track,
           case p_payload when 'hstore' then format(', g.data -> %L', p_track) when 'jsonb' then format(', g.data ->> %L', p_track) end),
    'substr(g.headers -> ''traceparent'', 4, 32)', '"left"(g.headers -> ''correlation'', 100)']
$$;

-- Replaces the indexes on these values of a table that stores messages; there are none without track.
create or replace function mbus._create_links(p_table text, p_payload text, p_track text) returns void
language plpgsql set search_path from current as $$
declare
  v_indexes    constant text := (
    select string_agg(i.indexrelid::regclass::text, ', ') from pg_index i
    where i.indrelid = format('mbus.%I', p_table)::regclass and i.indexprs is not null);
  v_expression text;
begin
  if v_indexes is not null then execute 'drop index ' || v_indexes; end if;
  foreach v_expression in array case when p_track is not null then mbus._link_expressions(p_payload, p_track) else '{}' end loop
    v_expression := replace(v_expression, 'g.', '');
    execute format('create index on mbus.%1$I ((%2$s)) where (%2$s) is not null', p_table, v_expression);
  end loop;
end $$;

create or replace function mbus._create_payload_table(p_name text, p_payload text, p_track text) returns void
language plpgsql set search_path from current as $$
begin
  -- At most eight columns, because a ninth adds eight bytes to the header of every row with a null.
  execute format($table$
    create table mbus.%I (
      id bigint not null, added timestamptz not null, data %s, headers hstore, properties hstore,
      expires timestamptz, origin bigint, trail jsonb
    ) with (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1,
            autovacuum_analyze_threshold = 2000000000)$table$, p_name, p_payload);
  execute format('create index %I on mbus.%I (id)', p_name || '_id', p_name);
  execute format('create index %I on mbus.%I (expires) where expires is not null', p_name || '_ex', p_name);
  perform mbus._create_links(p_name, p_payload, p_track);
end $$;

-- Rows with another number than their id (put back, delayed, posted under a reserved iid) are found by it; other rows are not in this
-- index.  The free space in each page keeps a leased row beside its old version, so that no index entry is written.
create or replace function mbus._create_reading_side(p_name text) returns void
language plpgsql set search_path from current as $$
begin
  execute format('alter table mbus.%I add column token bigint, add column leased_until timestamptz, set (fillfactor = %s)',
                 p_name, case when p_name like 'qc$%' then 35 else 50 end);
  execute format('create index %I on mbus.%I (origin) where origin is not null', p_name || '_or', p_name);
  perform mbus._create_sequence(p_name || '$hint'), mbus._create_sequence(p_name || '$base');
end $$;

create or replace function mbus._create_narrow_table(p_name text) returns void
language plpgsql set search_path from current as $$
begin
  execute format($table$
    create table mbus.%I (id bigint not null, origin bigint)
    with (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1,
          autovacuum_analyze_threshold = 2000000000)$table$, p_name);
  execute format('create index %I on mbus.%I (id)', p_name || '_id', p_name);
  perform mbus._create_reading_side(p_name);
end $$;

-- Creates the missing tables of one slot, in every lane and for every consumer.
create or replace function mbus._create_slot(p_queue mbus.queue, p_slot bigint) returns void
language plpgsql set search_path from current as $$
declare
  v_lane     text;
  v_consumer text;
  v_name     text;
begin
  foreach v_lane in array p_queue.lanes loop
    v_name := mbus._log_name(p_queue, v_lane, p_slot);
    if to_regclass(format('mbus.%I', v_name)) is null then
      perform mbus._create_payload_table(v_name, p_queue.payload, p_queue.track);
      if p_queue.mode = 'direct' then
        perform mbus._create_reading_side(v_name);
      end if;
    end if;
    continue when p_queue.mode = 'direct';
    for v_consumer in select name from mbus.consumer where queue_id = p_queue.id loop
      v_name := mbus._ready_name(p_queue, v_consumer, v_lane, p_slot);
      if to_regclass(format('mbus.%I', v_name)) is null then
        perform mbus._create_narrow_table(v_name);
      end if;
    end loop;
  end loop;
  perform mbus._index_keys(p_queue);
end $$;

create or replace function mbus._slot_exists(p_queue mbus.queue, p_slot bigint) returns boolean
language sql stable
return to_regclass(format('mbus.%I', mbus._log_name(p_queue, 'normal', p_slot))) is not null;

-- Creates the missing tables of every existing slot.
create or replace function mbus._create_slots(p_queue mbus.queue) returns void
language sql set search_path from current as $$
  select mbus._create_slot(p_queue, s.slot) from generate_series(0, p_queue.slots - 1::bigint) s(slot)
  where mbus._slot_exists(p_queue, s.slot)
$$;

-- The existing tables of a queue: per slot and lane the payload table, with the ready table of each consumer.  The slots are unnested,
-- because the planner assumes 1,000 rows for a series and then compiles the query.
create or replace function mbus._tables(p_queue mbus.queue)
returns table (slot bigint, lane text, payload_table text, consumer_id integer, consumer text, ready_table text)
language sql stable
begin atomic
  select s.slot, l.lane, mbus._log_name(p_queue, l.lane, s.slot), c.id, c.name,
         mbus._ready_name(p_queue, c.name, l.lane, s.slot)
  from unnest(array(select generate_series(0, (p_queue).slots - 1::bigint))) s(slot)
  cross join unnest((p_queue).lanes) l(lane)
  join mbus.consumer c on c.queue_id = (p_queue).id
  where to_regclass(format('mbus.%I', mbus._log_name(p_queue, l.lane, s.slot))) is not null;
end;

-- The tables of one consumer, from the oldest slot to the newest: the direction in which leased messages are moved, see mbus._carry.
create or replace function mbus._claim_tables(p_queue mbus.queue, p_consumer_id integer)
returns table (ready_table text, payload_table text)
language plpgsql volatile set search_path from current as $$
declare
  v_head    constant bigint := mbus._figure(p_queue.name, 'head') % p_queue.slots;
  v_is_home constant boolean := mbus._is_home();
begin
  -- Empty slots are left out, because a lock on one would prevent its truncation.
  return query select t.ready_table, t.payload_table from mbus._tables(p_queue) t
  where t.consumer_id = p_consumer_id and (mbus._base(t.ready_table) < mbus._drained() or not v_is_home)
  order by (t.slot + p_queue.slots - v_head) % p_queue.slots;
end $$;
