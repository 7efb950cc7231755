-- Processes delays that are over, leases that have ended, and messages that have expired.  Each function takes only unlocked rows.
-- The time is a sub-select, because a volatile function cannot be the condition of an index scan.
-- p_since is the start of the search: earlier runs have moved what came due before and left dead index entries, which an old snapshot
-- keeps; scanning them in each run would become slower and slower.

-- The same bound for leases.  Without a start it is the end of the first existing lease.
create or replace function mbus._leases_since(p_since timestamptz) returns timestamptz
language sql stable set search_path from current set enable_seqscan = off set jit = off as $$
  select case when p_since > '-infinity' then p_since else coalesce(
    (select min(l.leased_until) - interval '1 microsecond' from mbus.leased l
     where l.token >= (select pg_sequence_last_value('mbus.lease_floor'))), mbus.now()) end
$$;

-- Puts delayed messages that are due on the ring; for one consumer, its retries and messages for all consumers.  Retries of a group stay,
-- because they are taken from this table.
create or replace function mbus._release(p_queue mbus.queue, p_consumer_id integer, p_since timestamptz, p_limit integer) returns bigint
language plpgsql set search_path from current as $$
declare
  v_parcels mbus.parcel[];
begin
  with gone as (
    delete from mbus.delayed d
    where d.id = any (array(
      select w.id from mbus.delayed w
      where w.queue_id = p_queue.id and w.due_at > p_since and w.due_at <= (select mbus.now()) and w.group_name is null
        and (w.expires is null or w.expires > mbus.now())
        and (p_consumer_id is null or mbus._is_for(p_consumer_id, w.consumer_id, w.recipients))
      order by w.due_at limit p_limit for update skip locked))
    returning d.due_at, d.number, mbus._parcel(d) as parcel)
  select array_agg(g.parcel order by g.due_at, g.number) into v_parcels from gone g;
  perform mbus._put_many(p_queue.id, v_parcels);
  return coalesce(cardinality(v_parcels), 0);
end $$;

-- Truncates those of three tables that are empty, and returns the one to open next when the current one is full.  When none is free, the
-- rows of the smaller one are moved to the current one, 5,000 per call, once the current one has grown to the same size.
--   p_live  the condition for rows that are still needed
-- Locks: access exclusive on truncated tables; waits of others for this lock, and of this lock for others, are at most 20 milliseconds.
create or replace function mbus._free_segment(p_table text, p_current bigint, p_live text) returns bigint
language plpgsql set search_path from current set lock_timeout = '20ms' set enable_seqscan = off set jit = off as $$
declare
  -- Includes the long values, which are stored in the TOAST table.
  v_size  constant bigint := pg_table_size(format('mbus.%I', p_table || '_' || p_current)::regclass);
  v_other record;
  v_is_live boolean;
begin
  for v_other in
    select s.slot, n.name, pg_relation_size(n.name) as size
    from unnest(array[0, 1, 2]) s(slot) cross join lateral (select format('mbus.%I', p_table || '_' || s.slot)::regclass as name) n
    where s.slot <> p_current order by size
  loop
    execute format('select exists (select from %s where %s)', v_other.name, p_live) into v_is_live;
    if not v_is_live and v_other.size > 0 then
      begin
        execute format('lock table %s in access exclusive mode', v_other.name);
        execute format('select exists (select from %s where %s)', v_other.name, p_live) into v_is_live;
        if not v_is_live then execute format('truncate %s', v_other.name); end if;
      exception when lock_not_available or deadlock_detected then
        v_is_live := true;
      end;
    end if;
    continue when v_size < mbus._slot_bytes();
    if v_other.size = 0 then    -- not one that this transaction has locked
      return v_other.slot;
    elsif v_is_live and pg_table_size(v_other.name) <= v_size then
      execute format($query$
        with gone as (
          delete from %1$s d where d.ctid = any (array(select w.ctid from %1$s w where %3$s limit 5000 for update skip locked)) returning d as message)
        insert into mbus.%2$I select (g.message #= hstore('segment', $1)).* from gone g on conflict do nothing$query$,
        v_other.name, p_table, p_live) using p_current::text;
    end if;
    return null;    -- the other one is left to the next call
  end loop;
  return null;
end $$;

create or replace function mbus._rotate_delayed() returns void
language sql set search_path from current as $$
  select setval('mbus.delayed_tail', s.slot) from mbus._free_segment('delayed', pg_sequence_last_value('mbus.delayed_tail'), 'true') s(slot)
  where s.slot is not null
$$;

-- The same for keys.  Two posts of one key must conflict in a unique index.  So posts first write to both tables, and only to the new one
-- when all transactions that may have written only to the old one have ended: reading the sequence locks it until the end of the
-- transaction.
-- Returns the mark for the next run of the session: the transactions that are waited for.
create or replace function mbus._rotate_dedup(p_mark jsonb) returns jsonb
language plpgsql set search_path from current as $$
declare
  v_pair constant bigint := (select t.last_value from mbus.dedup_tail t);    -- without locking it
  v_next bigint;
begin
  if v_pair / 3 = v_pair % 3 then
    v_next := mbus._free_segment('dedup', v_pair / 3, 'until > (select mbus.now())');
    if v_next is null then return null; end if;
    perform setval('mbus.dedup_tail', v_pair / 3 * 3 + v_next);
    return jsonb_build_object('pair', v_pair / 3 * 3 + v_next, 'open', mbus._holders('mbus.dedup_tail'));
  end if;
  if (p_mark ->> 'pair')::bigint is distinct from v_pair then
    return jsonb_build_object('pair', v_pair, 'open', mbus._holders('mbus.dedup_tail'));
  elsif (p_mark -> 'open') ?| mbus._holders('mbus.dedup_tail') then
    return p_mark;
  end if;
  perform setval('mbus.dedup_tail', v_pair % 3 * 4);
  return null;
end $$;

-- Gives back messages whose lease has ended, of all consumers or one; after the last attempt they die.
-- Leases on the ring have no index by time: they are among the first messages of each table, because leasing goes in order.  If more than
-- 1,000 messages that can be taken precede them (5,000 with p_since '-infinity'), as when a transaction that has taken many is still open,
-- they wait for a run that searches everything: every 64th run of maintenance.
create or replace function mbus._end_leases(p_queue mbus.queue, p_consumer_id integer, p_since timestamptz, p_limit integer) returns bigint
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_row   mbus.leased;
  v_table record;
  v_ended record;
  v_count bigint := 0;
  v_since constant timestamptz := case when p_consumer_id is null then mbus._leases_since(p_since) else p_since end;
  v_most  constant integer := case
    when p_since > '-infinity' then 1000
    when p_consumer_id is null then case when pg_sequence_last_value('mbus.tick') % 64 = 0 then 1000000000 else 5000 end
    else case when random() < 0.02 then 1000000000 else 1000 end end;
begin
  for v_table in
    select t.* from mbus._tables(p_queue) t
    where (p_consumer_id is null or t.consumer_id = p_consumer_id) and mbus._base(t.ready_table) < mbus._drained()
  loop
    for v_ended in execute mbus._take_query(p_queue, v_table.ready_table, v_table.payload_table, format(
      's.ctid = any (array(
         select r.ctid from mbus.%1$I r cross join lateral (select e.expires from mbus.%2$I e where e.id = r.id offset 0) m
         where %3$s and r.leased_until <= $2 and (m.expires is null or m.expires > $2)
         order by r.id limit $3 for update of r skip locked))',
      v_table.ready_table, v_table.payload_table, mbus._claimed_condition(v_table.ready_table, v_most)))
    using array[v_table.consumer_id], mbus.now(), p_limit - v_count
    loop
      perform mbus._give_back(v_table.consumer_id, mbus._tried(v_ended.parcel), '0', 'the lease ended without an answer', false);
      v_count := v_count + 1;
    end loop;
  end loop;
  for v_row in
    with gone as (
      delete from mbus.leased l
      where l.token = any (array(
        select w.token from mbus.leased w
        where w.queue_id = p_queue.id and w.leased_until > v_since and w.leased_until <= (select mbus.now())
          and (w.expires is null or w.expires > mbus.now())
          and (p_consumer_id is null or w.consumer_id = p_consumer_id)
        order by w.leased_until limit p_limit - v_count for update skip locked))
      returning l.*)
    select * from gone g order by g.number
  loop
    perform mbus._give_back(v_row.consumer_id, mbus._parcel(v_row), '0', 'the lease ended without an answer', false);
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- The condition for leased rows r of a table of the ring that are preceded by no more than this many messages that can be taken.
create or replace function mbus._claimed_condition(p_ready text, p_most integer) returns text
language sql volatile set search_path from current as $$
  select format('r.token is not null and r.id >= %1$s and r.id < coalesce((
    select f.id from mbus.%2$I f where f.id >= %1$s and f.token is null order by f.id offset %3$s limit 1), 9223372036854775807)',
    case when mbus._is_home() then mbus._base(p_ready) else 0 end, p_ready, p_most)
$$;

-- Deletes expired messages: ready, set aside, and those whose lease has ended.
create or replace function mbus._expire(
  p_queue mbus.queue, p_limit integer, p_since timestamptz default '-infinity', p_leases_since timestamptz default '-infinity')
returns bigint
language plpgsql set search_path from current set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_table   record;
  v_gone    record;
  v_numbers bigint[];
  v_count   bigint := 0;
begin
  for v_table in
    select t.ready_table, t.payload_table, t.consumer_id from mbus._tables(p_queue) t
    -- If the index has only one page, it has never had an entry: no message in this table expires.
    where pg_relation_size(format('mbus.%I', t.payload_table || '_ex')::regclass) > 8192
  loop
    execute format($query$
      with gone as (
        delete from mbus.%1$I s where s.ctid in (
          select r.ctid from mbus.%2$I l join mbus.%1$I r on r.id = l.id
          where l.expires is not null and l.expires <= $1 and (r.token is null or r.leased_until <= $1)
          limit $2 for update of r skip locked)
        returning coalesce(s.origin, s.id) as number)
      select array_agg(number) from gone$query$, v_table.ready_table, v_table.payload_table)
    into v_numbers using mbus.now(), p_limit;
    continue when v_numbers is null;
    v_count := v_count + cardinality(v_numbers);
    perform mbus._tally(v_table.consumer_id, 'expired', cardinality(v_numbers));
    if p_queue.has_waiters then
      perform mbus._lost(p_queue.id, v_table.consumer_id, v_numbers);
    end if;
  end loop;
  -- The same for messages that are not on the ring.
  for v_gone in
    with delayed as (
      delete from mbus.delayed d where d.id in (
        select w.id from mbus.delayed w
        where w.queue_id = p_queue.id and w.expires > p_since and w.expires <= (select mbus.now())
        limit p_limit for update skip locked)
      returning d.consumer_id, d.number)
    , leased as (
      delete from mbus.leased l where l.token in (
        select w.token from mbus.leased w
        where w.queue_id = p_queue.id and w.leased_until > (select mbus._leases_since(p_leases_since)) and w.leased_until <= (select mbus.now())
          and w.expires <= (select mbus.now())
        limit p_limit for update skip locked)
      returning l.consumer_id, l.number)
    , blocked as (
      delete from mbus.blocked b where b.id in (
        select w.id from mbus.blocked w
        where w.queue_id = p_queue.id and w.expires > p_since and w.expires <= (select mbus.now()) and w.released_by is null
        limit p_limit for update skip locked)
      returning null::integer as consumer_id, b.number)
    select g.consumer_id, array_agg(g.number) as numbers
    from (select * from delayed union all select * from leased union all select * from blocked) g
    group by g.consumer_id
  loop
    v_count := v_count + cardinality(v_gone.numbers);
    perform mbus._tally(c.id, 'expired', cardinality(v_gone.numbers))
    from mbus.consumer c where c.queue_id = p_queue.id and c.id = coalesce(v_gone.consumer_id, c.id);
    if p_queue.has_waiters then
      perform mbus._lost(p_queue.id, v_gone.consumer_id, v_gone.numbers);
    end if;
  end loop;
  return v_count;
end $$;

-- Called by takes if no maintenance has run for two seconds: moves as many due messages as were asked for.  Others see them when the take
-- commits, so the retries and leases of other consumers are left to their own takes.
create or replace function mbus._attend(p_queue_id integer, p_consumer_id integer, p_amount integer) returns void
language plpgsql set search_path from current as $$
declare
  v_queue  mbus.queue;
  v_second constant text := extract(epoch from mbus.now())::bigint;
begin
  if extract(epoch from mbus.now()) - pg_sequence_last_value('mbus.attended') < 2 then return; end if;
  if not mbus._is_home() and pg_try_advisory_xact_lock(mbus._lock_class(), p_queue_id) then
    perform mbus._reset_hints(q) from mbus.queue q where q.id = p_queue_id;    -- a restored dump hides messages
  end if;
  select * into v_queue from mbus.queue where id = p_queue_id;
  -- Leases on the ring are found by reading all of them: once a second in each session is enough.
  if pg_sequence_last_value('mbus.lease_token') is not null
       and current_setting('mbus.leases_read_' || p_consumer_id, true) is distinct from v_second
     or exists (select from mbus.leased l where l.queue_id = p_queue_id and l.leased_until <= (select mbus.now())) then
    perform set_config('mbus.leases_read_' || p_consumer_id, v_second, false);
    perform mbus._end_leases(v_queue, p_consumer_id, '-infinity', p_amount);
  end if;
  if not exists (select from mbus.delayed d where d.queue_id = p_queue_id and d.due_at <= (select mbus.now()))
     and not exists (select from mbus.nudge) then
    return;
  end if;
  perform mbus._release(v_queue, p_consumer_id, '-infinity', p_amount);
  perform mbus._resolve(p_amount);
end $$;
