create or replace function mbus._limit_class() returns integer
language sql immutable parallel safe set search_path from current as $$ select hashtext('mbus.limit') $$;

create or replace function mbus._nanoseconds() returns bigint
language sql volatile set search_path from current as $$ select (extract(epoch from mbus.now()) * 1000000000)::bigint $$;

-- The number of messages that are held: by open transactions, which is the sum of the numbers in their advisory locks, see mbus._hold, and
-- leased.  In this order, a lease whose transaction ends between the two is counted twice rather than missed.
create or replace function mbus._held(p_consumer_id integer) returns bigint
language plpgsql volatile set search_path from current as $$
declare
  v_open constant bigint := (
    select coalesce(sum((l.objid::bigint & 2047) - 1024), 0) from pg_locks l
    where l.locktype = 'advisory' and l.objsubid = 2 and l.database = (select d.oid from pg_database d where d.datname = current_database())
      and l.classid::bigint = -p_consumer_id::bigint & 4294967295);
begin
  return v_open + mbus._claimed(q, c) + (select count(*) from mbus.leased l where l.consumer_id = c.id and l.leased_until > mbus.now())
  from mbus.consumer c join mbus.queue q on q.id = c.queue_id where c.id = p_consumer_id;
end $$;

-- Records that this transaction holds this many more messages until it ends, by a lock whose key contains the number, so that nothing
-- remains when the session ends.  Locks of groups have positive classes.
create or replace function mbus._hold(p_consumer_id integer, p_count integer) returns void
language plpgsql set search_path from current as $$
begin
  while p_count <> 0 and not pg_try_advisory_xact_lock(-p_consumer_id, floor(random() * 1048576)::integer * 2048 + p_count + 1024) loop
  end loop;
end $$;

-- The number of the p_amount messages that the consumer's rate and concurrency allow; the allowance is then used up, see mbus._return.
-- Locks: an advisory lock of the consumer during the call only, so that no two sessions get the same allowance.  It is acquired and
-- released inside the block that catches errors, because a cancelled statement must not leave it held by the session.
create or replace function mbus._admit(p_consumer_id integer, p_amount integer) returns integer
language plpgsql set search_path from current as $$
declare
  v_sequence constant regclass := format('mbus.%I', 'limit$' || p_consumer_id)::regclass;
  v_free     integer := p_amount;
  v_limit    mbus.consumer_limit;
  v_used     bigint;
  v_now      bigint;
begin
  select * into v_limit from mbus.consumer_limit l where l.consumer_id = p_consumer_id;
  if v_limit.consumer_id is null or p_amount <= 0 then return p_amount; end if;
  begin
    perform pg_advisory_lock(mbus._limit_class(), p_consumer_id);
    if v_limit.concurrency is not null then
      v_free := least(v_free, v_limit.concurrency - mbus._held(p_consumer_id));
    end if;
    if v_limit.rate is not null and v_free > 0 then
      v_now := mbus._nanoseconds();
      -- The time is later than now only if the clock was set back.
      v_used := least(v_now, greatest(pg_sequence_last_value(v_sequence), v_now - (v_limit.burst * 1e9 / v_limit.rate)::bigint));
      v_free := least(v_free, floor((v_now - v_used) * v_limit.rate / 1e9));
      perform setval(v_sequence, v_used + (greatest(v_free, 0) * 1e9 / v_limit.rate)::bigint);
    end if;
    v_free := greatest(v_free, 0);
    if v_limit.concurrency is not null then perform mbus._hold(p_consumer_id, v_free); end if;
    perform pg_advisory_unlock(mbus._limit_class(), p_consumer_id);
  exception when others or query_canceled or assert_failure then
    perform pg_advisory_unlock(mbus._limit_class(), p_consumer_id);
    raise;
  end;
  return v_free;
end $$;

-- Returns the unused part of the allowance of mbus._admit.
create or replace function mbus._return(p_consumer_id integer, p_count integer) returns void
language plpgsql set search_path from current as $$
declare
  v_sequence constant regclass := format('mbus.%I', 'limit$' || p_consumer_id)::regclass;
  v_limit    mbus.consumer_limit;
begin
  select * into v_limit from mbus.consumer_limit l where l.consumer_id = p_consumer_id;
  if p_count <= 0 or v_limit.consumer_id is null then return; end if;
  if v_limit.concurrency is not null then perform mbus._hold(p_consumer_id, -p_count); end if;
  if v_limit.rate is not null then
    perform pg_advisory_lock(mbus._limit_class(), p_consumer_id);
    perform setval(v_sequence, greatest(0, pg_sequence_last_value(v_sequence) - (p_count * 1e9 / v_limit.rate)::bigint));
    perform pg_advisory_unlock(mbus._limit_class(), p_consumer_id);
  end if;
exception when others or query_canceled or assert_failure then
  perform pg_advisory_unlock(mbus._limit_class(), p_consumer_id);
  raise;
end $$;

-- The limit that keeps a consumer from taking: rate or concurrency; null if there is none.
create or replace function mbus._limited_by(p_consumer_id integer) returns text
language plpgsql volatile security definer set search_path from current as $$
begin
  return case
    when pg_sequence_last_value(format('mbus.%I', 'limit$' || l.consumer_id)::regclass) > mbus._nanoseconds() - (1e9 / l.rate)::bigint then 'rate'
    when mbus._held(l.consumer_id) >= l.concurrency then 'concurrency' end
  from mbus.consumer_limit l where l.consumer_id = p_consumer_id;
exception when internal_error or undefined_table then
  return null;    -- The limit was removed in the meantime.
end $$;

-- Chooses and locks up to p_amount messages, if possible the same number of each key, beginning after the key that this session served
-- last.  Returns their places.
-- Locks: with limits per key an advisory lock per key, then the rows; both without waiting.
create or replace function mbus._choose(p_consumer_id integer, p_amount integer) returns bigint[]
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_setting constant text := 'mbus.key_' || p_consumer_id;
  v_limit   mbus.consumer_limit;
  v_queue   mbus.queue;
  v_tables  jsonb;
  v_keys    text[];
  v_served  text[] := '{}';
  v_after   text;
  v_is_again boolean;
  v_last    jsonb := '{}';
  v_free    jsonb := '{}';
  v_key     text;
  v_share   integer;
  v_found   bigint[];
  v_ids     bigint[] := '{}';
  v_before  integer;
begin
  select * into v_limit from mbus.consumer_limit l where l.consumer_id = p_consumer_id;
  select q.* into v_queue from mbus.queue q join mbus.consumer c on c.queue_id = q.id where c.id = p_consumer_id;
  v_tables := (select jsonb_agg(t) from mbus._tables_in_order(v_queue, (select c.name from mbus.consumer c where c.id = p_consumer_id)) t);
  if p_amount <= 0 or v_tables is null then return '{}'; end if;
  v_after := coalesce(current_setting(v_setting, true), '');
  loop
    v_before := cardinality(v_ids);
    -- First the keys that were not tried yet, so that a key that is at its limit does not hold back the others.
    v_keys := array(select n.key from unnest(mbus._next_keys(v_tables, v_limit.key, v_after, p_amount - v_before)) with ordinality n(key, place)
                    where not v_free ? n.key order by n.place);
    v_is_again := v_keys = '{}';
    if v_is_again then v_keys := v_served; end if;
    v_share := greatest(1, (p_amount - v_before) / greatest(1, cardinality(v_keys)));
    foreach v_key in array v_keys loop
      exit when cardinality(v_ids) >= p_amount;
      v_after := v_key;
      if not v_is_again then
        v_free := v_free || jsonb_build_object(v_key, mbus._key_rest(v_queue, v_limit, v_key, v_tables));
      end if;
      v_found := mbus._lock_of_key(v_queue, v_limit.key, v_tables, v_key, coalesce((v_last ->> v_key)::bigint, 0),
                                   least(v_share, p_amount - cardinality(v_ids), (v_free ->> v_key)::integer));
      continue when v_found = '{}';
      v_ids := v_ids || v_found;
      v_last := v_last || jsonb_build_object(v_key, v_found[cardinality(v_found)]);
      v_free := v_free || jsonb_build_object(v_key, (v_free ->> v_key)::integer - cardinality(v_found));
      if not v_is_again then v_served := v_served || v_key; end if;
      perform set_config(v_setting, v_key, false), mbus._use_key(v_limit, v_key, cardinality(v_found));
    end loop;
    exit when cardinality(v_ids) >= p_amount or v_is_again and cardinality(v_ids) = v_before;
  end loop;
  return v_ids;
end $$;

-- The next keys with ready messages, in order after p_after and then from the first, by one index probe per key.  The log of a fanout queue
-- may contain keys whose messages are all consumed.
create or replace function mbus._next_keys(p_tables jsonb, p_key text, p_after text, p_amount integer) returns text[]
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_expression constant text := mbus._key_of(p_key, 'g.');
  v_table record;
  v_start text;
  v_found text[];
  v_keys  text[] := '{}';
begin
  for v_table in select t ->> 'ready_table' as ready, t ->> 'payload_table' as payload from jsonb_array_elements(p_tables) t loop
    foreach v_start in array array['> $1', '>= '''''] loop
      execute format($query$
        with recursive k(key, is_ready, n) as (
          select f.key, e.is_ready, e.is_ready::integer
          from (select %1$s as key from mbus.%2$I g where %1$s %3$s order by %1$s limit 1) f cross join lateral (%4$s) e
          union all
          select f.key, e.is_ready, k.n + e.is_ready::integer
          from k cross join lateral (select %1$s as key from mbus.%2$I g where %1$s > k.key order by %1$s limit 1) f cross join lateral (%4$s) e
          where k.n < $2)
        select array_agg(key) from k where is_ready$query$,
        v_expression, v_table.payload, v_start,
        format('select exists (select from mbus.%I g join mbus.%I r on r.id = g.id where %s = f.key and g.id >= $3 and r.token is null) as is_ready',
               v_table.payload, v_table.ready, v_expression))
      into v_found using p_after, p_amount, mbus._hint(v_table.ready);
      v_keys := v_keys || v_found;
    end loop;
  end loop;
  return array(select d.key from (select distinct key from unnest(v_keys) key) d order by d.key <= p_after, d.key limit p_amount);
end $$;

-- Locks the next messages of a key, after a place, and returns their places.
create or replace function mbus._lock_of_key(
  p_queue mbus.queue, p_key text, p_tables jsonb, p_value text, p_after bigint, p_amount integer) returns bigint[]
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_is_direct constant boolean := p_queue.mode = 'direct';
  v_row   constant text := case when v_is_direct then 'r' else 'g' end;
  v_table record;
  v_found bigint[];
  v_ids   bigint[] := '{}';
begin
  for v_table in select t ->> 'ready_table' as ready, t ->> 'payload_table' as payload from jsonb_array_elements(p_tables) t loop
    exit when cardinality(v_ids) >= p_amount;
    execute format($query$
      select array_agg(c.id) from (
        select r.id from %1$s
        where %2$s = $1 and %3$s.id > $2 and r.token is null and (%3$s.expires is null or %3$s.expires > mbus.now())
          and %3$s.headers -> 'group' is null
        order by %3$s.id limit $3 for update of r skip locked) c$query$,
      case when v_is_direct then format('mbus.%I r', v_table.ready) else format('mbus.%I g join mbus.%I r on r.id = g.id', v_table.payload, v_table.ready) end,
      mbus._key_of(p_key, v_row || '.'), v_row)
    into v_found using p_value, greatest(p_after, mbus._hint(v_table.ready) - 1), p_amount - cardinality(v_ids);
    v_ids := v_ids || v_found;
  end loop;
  return v_ids;
end $$;

-- The number of messages of a key that may be taken now; 0 while another transaction takes messages of the key.
create or replace function mbus._key_rest(p_queue mbus.queue, p_limit mbus.consumer_limit, p_value text, p_tables jsonb) returns integer
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_rest   integer;
  v_leased bigint;
  v_table  record;
  v_is_locked boolean;
begin
  if coalesce(p_limit.key_rate, p_limit.key_concurrency) is null then return 2147483647; end if;
  -- The rate is also read before the lock, so that a key whose rate is used up is not locked until the end of the transaction.
  foreach v_is_locked in array '{false,true}'::boolean[] loop
    if v_is_locked and not pg_try_advisory_xact_lock(hashtextextended(p_value, p_limit.consumer_id)) then return 0; end if;
    v_rest := 2147483647;
    if p_limit.key_rate is not null then
      v_rest := (select floor(least((mbus._nanoseconds() - coalesce(max(mbus._used_until(k)), 0)) * p_limit.key_rate / 1e9, greatest(1, p_limit.key_rate)))
                 from mbus.limited_key k where k.consumer_id = p_limit.consumer_id and k.key = p_value);
    end if;
    if v_is_locked and p_limit.key_concurrency is not null then
      v_rest := least(v_rest, p_limit.key_concurrency);
      for v_table in select t ->> 'ready_table' as ready, t ->> 'payload_table' as payload from jsonb_array_elements(p_tables) t loop
        execute format('select count(*) from mbus.%I r join mbus.%I g on g.id = r.id where r.token is not null and r.leased_until > mbus.now() and %s = $1',
                       v_table.ready, v_table.payload, mbus._key_of(p_limit.key, 'g.'))
        into v_leased using p_value;
        v_rest := v_rest - v_leased;
      end loop;
    end if;
    exit when v_rest <= 0;
  end loop;
  return greatest(v_rest, 0);
end $$;

-- The time is null if the clock was set back since the key was used.
create or replace function mbus._used_until(p_key mbus.limited_key) returns bigint
language sql volatile set search_path from current as $$
  select p_key.used_until where p_key.used_until < mbus._nanoseconds() + 1000000000
$$;

create or replace function mbus._use_key(p_limit mbus.consumer_limit, p_value text, p_count integer) returns void
language plpgsql set search_path from current as $$
begin
  if p_limit.key_rate is null then return; end if;
  insert into mbus.limited_key as k (consumer_id, key, used_until)
  values (p_limit.consumer_id, p_value,
          mbus._nanoseconds() - (greatest(1, p_limit.key_rate) * 1e9 / p_limit.key_rate)::bigint + (p_count * 1e9 / p_limit.key_rate)::bigint)
  on conflict (consumer_id, key) do update
    set used_until = greatest(mbus._used_until(k), mbus._nanoseconds() - (greatest(1, p_limit.key_rate) * 1e9 / p_limit.key_rate)::bigint)
                     + (p_count * 1e9 / p_limit.key_rate)::bigint;
end $$;

-- Deletes keys whose rate is available again, because a missing row means the same.  At most 10,000 per call.
create or replace function mbus._forget_keys() returns void
language sql volatile set search_path from current as $$
  delete from mbus.limited_key k
  where k.ctid = any (array(
    select o.ctid from mbus.limited_key o join mbus.consumer_limit l using (consumer_id)
    where o.used_until <= mbus._nanoseconds() - (greatest(1, l.key_rate) * 1e9 / l.key_rate)::bigint
    limit 10000 for update of o skip locked))
$$;

create or replace function mbus._drop_limit(p_queue mbus.queue, p_consumer_id integer) returns void
language plpgsql set search_path from current as $$
declare
  v_indexes constant text := (
    select string_agg(format('mbus.%I', c.relname), ', ') from pg_class c
    where c.relnamespace = 'mbus'::regnamespace and c.relname = any (array(
      select format('key$%s$%s', to_regclass(format('mbus.%I', t.payload_table))::oid, p_consumer_id) from mbus._tables(p_queue) t)));
begin
  delete from mbus.consumer_limit where consumer_id = p_consumer_id;
  if to_regclass('mbus.limit$' || p_consumer_id) is not null then execute format('drop sequence mbus.%I', 'limit$' || p_consumer_id); end if;
  if v_indexes is not null then execute 'drop index ' || v_indexes; end if;
end $$;

-- The key of a row, as an expression; p_row is its alias with a point, or empty.  Its first 100 characters, because an index entry has a
-- maximum size.
create or replace function mbus._key_of(p_key text, p_row text) returns text
language sql immutable set search_path from current as $$
  select format('"left"(coalesce(%1$sproperties -> %2$L, %1$sheaders -> %2$L, ''''), 100)', p_row, p_key)
$$;

-- Creates missing indexes by which messages are taken in turns.
create or replace function mbus._index_keys(p_queue mbus.queue) returns void
language plpgsql set search_path from current as $$
declare
  v_table record;
begin
  for v_table in
    select distinct t.payload_table, to_regclass(format('mbus.%I', t.payload_table))::oid as oid, l.consumer_id, l.key
    from mbus._tables(p_queue) t join mbus.consumer_limit l using (consumer_id) where l.key is not null
      and to_regclass(format('mbus.%I', format('key$%s$%s', to_regclass(format('mbus.%I', t.payload_table))::oid, l.consumer_id))) is null
  loop
    execute format('create index %I on mbus.%I ((%s), id)', format('key$%s$%s', v_table.oid, v_table.consumer_id),
                   v_table.payload_table, mbus._key_of(v_table.key, ''));
  end loop;
end $$;
