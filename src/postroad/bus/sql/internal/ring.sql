-- Keeping the ring small.  Called by mbus.maintain under the queue's advisory lock.
-- Life of a slot: free -> current (tail) -> sealed -> empty -> truncated -> free (head moves past it).

-- Open transactions that have drawn from a sequence, or written to a table: both hold a lock on it until the end of the transaction.
create or replace function mbus._holders(p_sequence regclass, p_except_pid integer default pg_backend_pid()) returns text[]
language sql volatile set search_path from current as $$
  select coalesce(array_agg(l.virtualtransaction), '{}')
  from pg_locks l
  where l.locktype = 'relation' and l.mode = 'RowExclusiveLock' and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and l.relation = p_sequence::oid and l.pid is distinct from p_except_pid
$$;

-- Makes the last number of a sequence the same on all servers of a cluster.  Numbers are logged 32 ahead: a standby that is promoted goes on
-- after these, but the former primary goes on with its own if it leads again before a number was drawn.  So this must be called before
-- anything that lasts depends on the last number.  No logged numbers are left when the sequence was replayed, and after every 33rd number.
create or replace function mbus._pin(p_sequence regclass) returns void
language plpgsql volatile set search_path from current as $$
begin
  execute format('select nextval($1) from %s s where s.log_cnt = 0 and s.last_value > 0', p_sequence) using p_sequence;
end $$;

-- A marker: the newest generation, then the last id, then the transactions that may have drawn it or an earlier one.  The
-- order matters, see mbus._settle: transactions that begin after the read draw larger ids, and read the tail later.
create or replace function mbus._mark(p_queue mbus.queue) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_tail  constant bigint := mbus._figure(p_queue.name, 'tail');
  v_bound constant bigint := pg_sequence_last_value(p_queue.position);
begin
  perform mbus._pin(p_queue.position);
  return jsonb_build_object('tail', v_tail, 'bound', v_bound, 'open', mbus._holders(p_queue.position));
end $$;

-- The first of the two markers that is settled: all transactions that were open then have ended.
create or replace function mbus._settled_mark(p_sequence regclass, p_newer jsonb, p_older jsonb) returns jsonb
language sql volatile set search_path from current as $$
  select mark
  from (values (1, p_newer), (2, p_older)) candidate(place, mark), mbus._holders(p_sequence) now_open
  where mark is not null and not (mark -> 'open') ?| now_open
  order by place limit 1
$$;

-- A marker for messages outside the ring.  A transaction that stores such a message may commit long after the message came due, and a run
-- that checks only the time since the last run would miss it.
--   since  no open transaction has stored such a message before this time
--   made   when this marker was made
--   open   transactions that had stored one by then and have not ended
-- Once these have ended, all open transactions have begun to write after the marker was made.
create or replace function mbus._mark_aside(p_mark jsonb, p_now timestamptz) returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_open constant text[] := mbus._holders('mbus.delayed') || mbus._holders('mbus.leased');
begin
  if (p_mark -> 'open') ?| v_open then return p_mark; end if;
  return jsonb_build_object('since', coalesce((p_mark ->> 'made')::timestamptz, '-infinity'), 'made', p_now, 'open', v_open);
end $$;

-- Raises the floor of the tokens as _settle raises a hint.  Gets the marker of this session's last run and returns the marker for the next
-- run.  Must be called before the transaction ends a lease, because the transaction may roll back but the floor does not.
create or replace function mbus._raise_lease_floor(p_mark jsonb) returns jsonb
language plpgsql volatile set search_path from current set enable_seqscan = off set jit = off as $$
declare
  -- Not pg_sequence_last_value, which would make this session a holder for others.
  v_last  constant bigint := (select case when s.is_called then s.last_value else 0 end * 262144 + 262143 from mbus.lease_token s);
  v_newer constant jsonb := jsonb_build_object('bound', v_last, 'open', mbus._holders('mbus.lease_token'));
  v_floor constant bigint := pg_sequence_last_value('mbus.lease_floor');
  v_bound constant bigint := mbus._settled_mark('mbus.lease_token', v_newer, p_mark) ->> 'bound';
  v_first bigint;
begin
  if v_bound is null then return coalesce(p_mark, v_newer); end if;
  select l.token into v_first from mbus.leased l where l.token >= v_floor order by l.token limit 1;
  if least(coalesce(v_first, v_bound + 1), v_bound + 1) > v_floor then
    perform mbus._pin('mbus.lease_token');
    perform setval('mbus.lease_floor', least(coalesce(v_first, v_bound + 1), v_bound + 1));
  end if;
  return v_newer;
end $$;

-- Markers are kept between runs in a setting of the session, so that there are no dead rows.  Any user can change a setting, so it is
-- signed; setting an old marker again does no harm.
create or replace function mbus._signature(p_text text) returns text
language sql stable set search_path from current as $$ select encode(sha256(convert_to(secret || p_text, 'UTF8')), 'hex') from mbus.node $$;

create or replace function mbus._keep_markers(p_markers jsonb) returns void
language sql volatile set search_path from current as $$
  select set_config('mbus.markers', mbus._signature(p_markers::text) || p_markers::text, false)
$$;

create or replace function mbus._recall_markers() returns jsonb
language sql stable set search_path from current as $$
  select case when mbus._signature(substr(kept, 65)) = left(kept, 64) then substr(kept, 65)::jsonb else '{}' end
  from current_setting('mbus.markers', true) kept
$$;

-- A slot that has grown to this size is sealed: at 200 bytes of payload about 25,000 messages.  It is small because a session without a
-- hint scans the dead rows of a slot, and not smaller because each truncation leaves a few dead rows in the catalogue.
create or replace function mbus._slot_bytes() returns bigint
language sql immutable parallel safe return 8388608;

-- The hint of a sealed table without messages to take: takes skip the table without locking it.  As the base of a table: the table is
-- empty, and can be locked and truncated under load.
create or replace function mbus._drained() returns bigint
language sql immutable parallel safe return 4611686018427387904;

-- Raises the hints of a queue.
--   p_bound  an id such that every transaction that drew it or a smaller one has ended; so what is not
--            visible now with such an id never will be
--   p_tail   the newest generation, read before p_bound.  A post draws its id first and then reads the
--            tail, so ids above p_bound never come into an older generation
create or replace function mbus._settle(p_queue mbus.queue, p_bound bigint, p_tail bigint) returns bigint
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_table record;
  v_hint  bigint;
  v_base  bigint;
  v_free  bigint;
  v_first bigint;
  v_count bigint := 0;
begin
  for v_table in
    select distinct t.ready_table, t.slot <> p_tail % p_queue.slots as is_sealed,
           mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table) as rows
    from mbus._tables(p_queue) t
    where t.slot in (select g % p_queue.slots from generate_series(mbus._figure(p_queue.name, 'head'), p_tail) g)
  loop
    v_hint := mbus._hint(v_table.ready_table);
    v_base := mbus._base(v_table.ready_table);
    continue when v_base > p_bound and (v_base = mbus._drained() or not v_table.is_sealed);
    -- A leased message is never taken from its place, so takes need not see it.
    execute format('select (select s.id from %1$s s where s.id >= $1 order by s.id limit 1),
                           (select s.id from %1$s s where s.id >= $2 and s.token is null order by s.id limit 1)', v_table.rows)
      into v_first, v_free using v_base, v_hint;
    v_first := case when v_first is null and v_table.is_sealed then mbus._drained()
                    else least(coalesce(v_first, p_bound + 1), p_bound + 1) end;
    v_free := case when v_free is null and v_table.is_sealed then mbus._drained()
                   else least(coalesce(v_free, p_bound + 1), p_bound + 1) end;
    continue when v_free <= v_hint and v_first <= v_base;
    perform mbus._set_hints(v_table.ready_table, greatest(v_free, v_hint), greatest(v_first, v_base));
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Opens the next slot once the current one is full.  A slot that does not exist yet is created, and opened by the next call, when its
-- tables are committed: other sessions see the tail, a sequence, immediately.  If every slot is in use, the current one keeps growing.
create or replace function mbus._rotate(p_queue mbus.queue) returns bigint
language plpgsql set search_path from current as $$
declare
  v_head bigint := mbus._figure(p_queue.name, 'head');
  v_tail bigint := mbus._figure(p_queue.name, 'tail');
  v_size numeric;
  -- Retained segments are fewer and larger, because the log of a fanout queue has no dead rows that a take would scan.
  v_is_retained constant boolean := mbus._is_retained(p_queue);
begin
  if v_tail + 1 - v_head >= p_queue.slots then return 0; end if;
  -- With the long values, which are stored aside.
  select sum(pg_table_size(format('mbus.%I', mbus._log_name(p_queue, l.lane, v_tail % p_queue.slots))::regclass))
  into v_size from unnest(p_queue.lanes) l(lane);
  if v_size < mbus._slot_bytes() * (case when v_is_retained then 4 else 1 end)
     and not (v_is_retained and mbus._is_aged(p_queue, v_tail % p_queue.slots)) then
    return 0;
  end if;
  if not mbus._slot_exists(p_queue, (v_tail + 1) % p_queue.slots) then
    perform mbus._create_slot(p_queue, (v_tail + 1) % p_queue.slots);
    return 0;
  end if;
  -- Sessions that see the new tail must not see the hints of the slot's last life.
  perform mbus._set_hints(t.ready_table, 0, 0) from mbus._tables(p_queue) t where t.slot = (v_tail + 1) % p_queue.slots;
  perform setval(format('mbus.%I', 'qs$' || p_queue.name || '$tail')::regclass, v_tail + 1);
  return 1;
end $$;

-- Truncates sealed slots that are empty, in any order, and moves the head past those at the front.
create or replace function mbus._reclaim(p_queue mbus.queue) returns bigint
language plpgsql set search_path from current as $$
declare
  v_head    bigint := mbus._figure(p_queue.name, 'head');
  v_tail    bigint := mbus._figure(p_queue.name, 'tail');
  v_is_free boolean;
  v_is_front boolean := true;
  v_count   bigint := 0;
begin
  for v_generation in v_head .. v_tail - 1 loop
    v_is_free := mbus._truncate(p_queue, v_generation % p_queue.slots);
    if not v_is_free and v_is_front and v_tail + 1 - v_generation >= p_queue.slots then
      perform mbus._carry(p_queue, v_generation % p_queue.slots);
    end if;
    v_is_front := v_is_front and v_is_free;
    if v_is_free then v_count := v_count + 1; end if;
    if v_is_front then
      -- A sequence does not roll back, but the slot is empty even if this transaction fails.
      perform setval(format('mbus.%I', 'qs$' || p_queue.name || '$head')::regclass, v_generation + 1);
    end if;
  end loop;
  return v_count;
end $$;

-- Moves leased messages out of a slot that the ring needs again and that has no other messages, into the newest slot, with their tokens and
-- ends of leases.  Up to 1,000 per call and consumer.  A holder that answers in the meantime waits, see mbus._answer.
create or replace function mbus._carry(p_queue mbus.queue, p_slot bigint) returns void
language plpgsql set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_table record;
  v_lease record;
begin
  for v_table in
    select t.* from mbus._tables(p_queue) t
    where t.slot = p_slot and mbus._hint(t.ready_table) = mbus._drained() and mbus._base(t.ready_table) < mbus._drained()
  loop
    for v_lease in execute mbus._take_query(p_queue, v_table.ready_table, v_table.payload_table, format(
      's.ctid = any (array(select r.ctid from mbus.%I r where r.id >= $2 and r.token is not null order by r.id limit 1000 for update skip locked))',
      v_table.ready_table)) using array[v_table.consumer_id], mbus._base(v_table.ready_table)
    loop
      perform mbus._put_many(p_queue.id, array[v_lease.parcel]);
      execute format('update mbus.%I s set token = $1, leased_until = $2 where s.origin = $3', mbus._ready_name(
        p_queue, v_table.consumer, v_table.lane, mbus._figure(p_queue.name, 'tail') % p_queue.slots))
      using v_lease.token, v_lease.leased_until, (v_lease.parcel).number;
    end loop;
  end loop;
end $$;

-- Locks: access exclusive on the slot's tables, never waited for.  While they are held, no transaction has an open post or take there, so
-- "no visible row" means "no row", because the check has its own snapshot (READ COMMITTED).
create or replace function mbus._truncate(p_queue mbus.queue, p_slot bigint) returns boolean
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_tables text[];
  v_rows   text;
  v_is_drained boolean;
  v_is_live boolean;
begin
  select array_agg(distinct name order by name), bool_and(mbus._base(t.ready_table) = mbus._drained())
  into v_tables, v_is_drained
  from mbus._tables(p_queue) t cross join unnest(array[t.payload_table, t.ready_table]) name
  where t.slot = p_slot;
  if not v_is_drained then return false; end if;
  if not exists (select from unnest(v_tables) name
                 where pg_relation_size(format('mbus.%I', name)::regclass) > 0) then
    return true;
  end if;
  begin
    execute 'lock table ' || (select string_agg(format('mbus.%I', name), ', ') from unnest(v_tables) name)
         || ' in access exclusive mode nowait';
  exception when lock_not_available then
    return false;
  end;
  for v_rows in
    select distinct mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table) from mbus._tables(p_queue) t where t.slot = p_slot
  loop
    execute format('select exists (select from %s s)', v_rows) into v_is_live;
    if v_is_live then return false; end if;
  end loop;
  if mbus._is_retained(p_queue) then
    perform mbus._retain(p_queue, p_slot);
  end if;
  execute 'truncate ' || (select string_agg(format('mbus.%I', name), ', ') from unnest(v_tables) name);
  return true;
end $$;
