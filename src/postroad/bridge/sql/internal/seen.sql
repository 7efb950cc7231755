-- The ledger of what has arrived.

-- Which messages of a batch are new, in order of their places; records those in the ledger.
-- An iid is looked up by ranges; any other id in the tables of foreign ones; no id at all is always new.
-- Locks: the origins of the batch in order of their numbers, to the end of the transaction; then foreign ids in order.
create or replace function bridge._accept(p_inlet bridge.inlet, p_batch bigint, p_ids text[]) returns boolean[]
language plpgsql set search_path from current as $$
declare
  -- Null where the id is not an iid.  Messages of a database always have iids; a broker may send any id.
  v_queues  constant text[] := case when p_batch is not null
    then array(select split_part(i, '.', 1) from unnest(p_ids) i)
    else array(select substring(i from '^([^.@]+)\.[0-9]{1,18}@[a-z0-9]{1,12}(?:/.+)?$') from unnest(p_ids) i) end;
  v_new     boolean[];
  v_origin  integer;
  v_numbers bigint[];
  v_ranges  int8multirange;
  v_seen    int8multirange;
  v_bound   record;
begin
  v_new := array_fill(true, array[cardinality(p_ids)]);
  for v_bound in
    select i.queue, substr(i.id, strpos(i.id, '@') + 1) as node, array_agg(i.place::integer) as places,
           array_agg(split_part(split_part(i.id, '.', 2), '@', 1)::bigint) as numbers
    from unnest(p_ids, v_queues) with ordinality i(id, queue, place)
    where i.queue is not null group by 1, 2 order by 1, 2
  loop
    v_origin := bridge._origin(p_inlet.queue, v_bound.node, v_bound.queue);
    perform pg_advisory_xact_lock(bridge._lock_class(), v_origin);
    select range_agg(int8range(n, n + 1)) into v_ranges from unnest(v_bound.numbers) n;
    -- A separate statement, so that it sees the commits of the last holder of the lock.
    select range_agg(r) into v_seen from bridge.ledger l cross join unnest(l.numbers) r
    where l.origin_id = v_origin and l.last >= lower(v_ranges) and l.first < upper(v_ranges) and l.numbers && v_ranges;
    if v_seen is not null or (select sum(upper(r) - lower(r)) from unnest(v_ranges) r) < cardinality(v_bound.numbers) then
      for v_number in 1 .. cardinality(v_bound.numbers) loop
        if v_bound.numbers[v_number] <@ coalesce(v_seen, '{}')
           or v_bound.numbers[v_number] = any (v_bound.numbers[1:v_number - 1]) then
          v_new[v_bound.places[v_number]] := false;
        end if;
      end loop;
      v_ranges := v_ranges - coalesce(v_seen, '{}');
    end if;
    if not isempty(v_ranges) then
      insert into bridge.ledger (origin_id, first, last, numbers, inlet_id, batch, seen_at)
      values (v_origin, lower(v_ranges), upper(v_ranges) - 1, v_ranges, p_inlet.id, p_batch, bridge.now());
    end if;
  end loop;
  if exists (select from unnest(p_ids, v_queues) u(id, queue) where u.id is not null and u.queue is null) then
    v_new := bridge._accept_foreign(p_inlet.queue, p_ids, v_queues, v_new);
  end if;
  return v_new;
end $$;

create or replace function bridge._origin(p_queue text, p_node text, p_source_queue text) returns integer
language plpgsql set search_path from current as $$
declare
  v_id integer;
begin
  select o.id into v_id from bridge.origin o
  where o.queue = p_queue and o.node = p_node and o.source_queue = p_source_queue;
  if not found then
    insert into bridge.origin (queue, node, source_queue) values (p_queue, p_node, p_source_queue)
    on conflict on constraint origin_is_unique do nothing;
    select o.id into v_id from bridge.origin o
    where o.queue = p_queue and o.node = p_node and o.source_queue = p_source_queue;
  end if;
  return v_id;
end $$;

-- The same for other ids.  Both tables are read, the newer one is written; of equal ids the first one is new.
create or replace function bridge._accept_foreign(p_queue text, p_ids text[], p_own text[], p_new boolean[]) returns boolean[]
language plpgsql set search_path from current as $$
declare
  v_young bigint;
begin
  -- Taken before reading which table is the newer one: that changes only while no transaction holds this lock.
  lock table bridge.foreign_0, bridge.foreign_1 in row exclusive mode;
  v_young := pg_sequence_last_value('bridge.turns') % 2;
  execute format($query$
    with given as (
      select i.id, min(i.place) as place from unnest($2, $3) with ordinality i(id, own, place)
      where i.id is not null and i.own is null group by i.id)
    , added as (
      insert into bridge.%I (queue, id) select $1, g.id from given g
      where not exists (select from bridge.%I f where f.queue = $1 and f.id = g.id)
      order by g.id on conflict do nothing returning id)
    select array_agg(case when u.id is null or u.own is not null then u.is_new else a.id is not null end order by u.place)
    from unnest($2, $3, $4) with ordinality u(id, own, is_new, place)
    left join given g on g.place = u.place left join added a on a.id = g.id$query$,
    'foreign_' || v_young, 'foreign_' || (1 - v_young))
  into p_new using p_queue, p_ids, p_own, p_new;
  return p_new;
end $$;

-- Removes ids that this transaction has added to the ledger: their messages were refused and may come again.
create or replace function bridge._unsee(p_queue text, p_ids text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_id     text;
  v_number bigint;
begin
  foreach v_id in array p_ids loop
    if v_id ~ '^[^.@]+\.[0-9]{1,18}@[a-z0-9]{1,12}(/.+)?$' then
      v_number := split_part(split_part(v_id, '.', 2), '@', 1)::bigint;
      update bridge.ledger l set numbers = l.numbers - int8multirange(int8range(v_number, v_number + 1))
      where l.origin_id = bridge._origin(p_queue, substr(v_id, strpos(v_id, '@') + 1), split_part(v_id, '.', 1))
        and l.last >= v_number and l.first <= v_number and l.numbers @> v_number;
    else
      delete from bridge.foreign_0 f where f.queue = p_queue and f.id = v_id;
      delete from bridge.foreign_1 f where f.queue = p_queue and f.id = v_id;
    end if;
  end loop;
end $$;
