-- The queues that a maintenance run should visit, which are locked: those that were not empty at their last visit, those with due messages,
-- and each of the others every few minutes.  At most 100, in a different order each time.
create or replace function mbus._restless(p_name text, p_tick bigint, p_since timestamptz) returns mbus.queue[]
language plpgsql volatile set search_path from current as $$
declare
  -- Reading a sequence locks it until the end of the transaction, and the server can hold some
  -- thousands of locks: with very many queues each run checks a part of them.
  v_parts  constant bigint := 1 + (select count(*) from mbus.queue) / 1000;
  v_leases constant timestamptz := mbus._leases_since(p_since);
  v_now    constant timestamptz := mbus.now();
  v_queues mbus.queue[];
begin
  with due as materialized (
    select q.id from mbus.queue q
    where exists (select from mbus.delayed d where d.queue_id = q.id and d.due_at > p_since and d.due_at <= (select mbus.now()) and d.group_name is null)
       or exists (select from mbus.leased l where l.queue_id = q.id and l.leased_until > v_leases and l.leased_until <= (select mbus.now()))),
  chosen as materialized (
    select q from mbus.queue q
    where q.name = p_name
       or p_name is null and q.id % v_parts = p_tick % v_parts
          and (not mbus._is_at_rest(pg_sequence_last_value(q.position), pg_sequence_last_value(q.swept), v_now)
               or q.id in (select id from due)
               or (p_tick + q.id) % 1024 = 0)
    order by (q.id + p_tick * 7919) % 1000003
    limit 100)
  select coalesce(array_agg(c.q), '{}') into v_queues from chosen c where pg_try_advisory_xact_lock(mbus._lock_class(), (c.q).id);
  return v_queues;
exception when internal_error or undefined_table then
  return '{}';    -- a queue was dropped while its sequences were read; the next run handles the others
end $$;

-- The value of the sequence swept for a queue that has only leased messages up to an id: the queue is skipped until the first of these
-- leases ends or a message is posted.  The last 32 bits are the time in seconds; the 30 bits before them are the last bits of the id.
create or replace function mbus._rest(p_bound bigint, p_until timestamptz) returns bigint
language sql immutable parallel safe
return mbus._drained() + (p_bound & 1073741823) * 4294967296 + ceil(extract(epoch from p_until))::bigint;

-- At most a minute, because a lease may have been shortened during the visit.
create or replace function mbus._is_at_rest(p_position bigint, p_swept bigint, p_now timestamptz) returns boolean
language sql immutable parallel safe
return p_swept = p_position or p_swept > mbus._rest(p_position, p_now) and p_swept <= mbus._rest(p_position, p_now + interval '1 minute');

-- The value that a visit stores in the sequence swept: the given id if no message up to it is ready or leased, the value above if all are
-- leased, otherwise 0.
create or replace function mbus._swept(p_queue mbus.queue, p_bound bigint, p_now timestamptz) returns bigint
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_table text;
  v_end   timestamptz;
  v_until timestamptz;
begin
  for v_table in
    select t.ready_table from mbus._tables(p_queue) t
    where mbus._base(t.ready_table) <= p_bound
      and t.slot in (select g % p_queue.slots from generate_series(mbus._figure(p_queue.name, 'head'), mbus._figure(p_queue.name, 'tail')) g)
  loop
    if mbus._hint(v_table) <= p_bound then return 0; end if;
    execute format('select min(s.leased_until) from mbus.%I s where s.id >= $1', v_table) into v_end using mbus._base(v_table);
    v_until := least(v_until, v_end, p_now + interval '1 minute');
  end loop;
  return coalesce(mbus._rest(p_bound, v_until), p_bound);
end $$;

-- Records the position of a queue for the posting rate in mbus.status, every ten seconds at most, and counts the posts since the last
-- record.
create or replace function mbus._sample(p_queue mbus.queue, p_now timestamptz) returns void
language sql set search_path from current as $$
  with taken as (
    insert into mbus.sample (consumer_id, taken_at, posted)
    select c.id, p_now, pg_sequence_last_value(p_queue.position)
    from mbus.consumer c
    where c.queue_id = p_queue.id
      and not exists (select from mbus.sample s where s.consumer_id = c.id and s.taken_at > p_now - interval '10 seconds')
    on conflict do nothing returning consumer_id, posted),
  counted as (
    insert into mbus.tally (consumer_id, at, kind, messages)
    select n.consumer_id, p_now, 'posted', n.posted - s.posted
    from taken n cross join lateral (
      -- The previous sample: a statement does not see its own inserts.
      select b.posted from mbus.sample b where b.consumer_id = n.consumer_id order by b.taken_at desc limit 1) s
    where n.posted > s.posted)
  delete from mbus.sample s using taken n where s.consumer_id = n.consumer_id and s.taken_at < p_now - interval '10 minutes'
$$;

-- Ready messages of one consumer: counted up to 10,000, beyond that estimated from the ids.
create or replace function mbus._ready(
  p_queue mbus.queue, p_consumer mbus.consumer,
  out ready bigint, out oldest timestamptz, out is_estimate boolean)
language plpgsql security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_limit constant bigint := 10000;
  v_is_home constant boolean := mbus._is_home();
  v_table record;
  v_rows  bigint;
  v_first bigint;
  v_last  bigint;
  v_end   bigint;
  v_added timestamptz;
begin
  ready := 0;
  is_estimate := false;
  for v_table in
    select t.*, mbus._ready_rows(p_consumer.id, t.ready_table, t.payload_table) as rows from mbus._tables(p_queue) t
    where t.consumer_id = p_consumer.id
  loop
    execute format('select count(*), min(w.id), max(w.id) from (
                      select s.id from %s s where s.id >= $1 and s.token is null order by s.id limit $2) w', v_table.rows)
      into v_rows, v_first, v_last using case when v_is_home then mbus._hint(v_table.ready_table) else 0 end, v_limit;
    continue when v_rows = 0;
    if v_rows = v_limit then
      is_estimate := true;
      execute format('select max(s.id) from mbus.%I s',
                     case p_consumer.contract when 'cursor' then v_table.payload_table else v_table.ready_table end) into v_end;
      v_rows := v_rows + (v_end - v_last) * v_rows / (v_last - v_first + 1);
    end if;
    ready := ready + v_rows;
    execute format('select l.added from mbus.%I l where l.id = $1', v_table.payload_table) into v_added using v_first;
    oldest := least(oldest, v_added);
  end loop;
exception when internal_error or undefined_table then
  -- The queue was dropped meanwhile.
  ready := 0;
  oldest := null;
end $$;
