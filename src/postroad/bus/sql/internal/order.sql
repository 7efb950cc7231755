-- Ordering: consume_after.
--
-- A blocked message is released by the transaction that handles its last predecessor.  Two such
-- concurrent transactions do not see each other, so each tries to lock the blocked message, and the one that
-- fails writes a nudge; maintenance, which sees both committed, decides.  No transaction waits for another.

-- State of a consumer's copy of a message:
--   there  it waits for the consumer, and our transaction has locked it until its end
--   leased the same for a leased copy
--   held   another transaction has locked it, so it is not decided yet whether it is done
--   gone   it is done
-- All tables are searched by one statement with one snapshot: a message is in exactly one of them at any time, but it may move, and
-- separate searches could all miss it.
-- Locks: key share on the row, so that no transaction handles it before our notes are visible.
create or replace function mbus._state(p_queue mbus.queue, p_consumer_id integer, p_number bigint) returns text
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_rows   text := 'from %s s where s.id = $3 and s.origin is null or s.origin = $3';
  v_tables constant text[] := array(
    select t.ready_table from mbus._tables(p_queue) t where t.consumer_id = p_consumer_id);
  v_place  text;
  v_is_leased boolean;
begin
  execute format('select case when false then null %s else mbus._place_aside($1, $2, $3) end',
    (select string_agg(format('when exists (select ' || v_rows || ') then %L', mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table), t.ready_table), ' ')
     from mbus._tables(p_queue) t where t.consumer_id = p_consumer_id))
  into v_place using p_queue.id, p_consumer_id, p_number;
  if v_place is null then return 'gone'; end if;
  if v_place = any (v_tables) then
    v_rows := format(v_rows, format('mbus.%I', v_place));
  else
    v_rows := format('from mbus.%I s where s.queue_id = $1 and s.number = $3 and %s', v_place, case v_place
      when 'delayed' then 'mbus._is_for($2, s.consumer_id, s.recipients)'
      when 'blocked' then 's.released_by is null and mbus._is_for($2, null, s.recipients)' else 's.consumer_id = $2' end);
  end if;
  execute format('select %s %s for key share skip locked',
                 case when v_place = any (v_tables) then 's.token is not null' else (v_place = 'leased')::text end, v_rows)
  into v_is_leased using p_queue.id, p_consumer_id, p_number;
  return case v_is_leased when true then 'leased' when false then 'there' else 'held' end;
end $$;

-- The table of a message that is not on the ring.  Stable: it uses the snapshot of its caller.
create or replace function mbus._place_aside(p_queue_id integer, p_consumer_id integer, p_number bigint) returns text
language plpgsql stable set search_path from current set enable_seqscan = off as $$
begin
  return case
    when exists (select from mbus.dmq d where d.queue_id = p_queue_id and d.number = p_number and d.consumer_id = p_consumer_id)
      then 'dmq'
    when exists (select from mbus.leased l where l.queue_id = p_queue_id and l.number = p_number and l.consumer_id = p_consumer_id)
      then 'leased'
    when exists (select from mbus.delayed d where d.queue_id = p_queue_id and d.number = p_number
                   and mbus._is_for(p_consumer_id, d.consumer_id, d.recipients)) then 'delayed'
    when exists (select from mbus.blocked b where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null
                   and mbus._is_for(p_consumer_id, null, b.recipients)) then 'blocked' end;
end $$;

-- True if a message outside the ring is addressed to the consumer.
create or replace function mbus._is_for(p_consumer_id integer, p_only integer, p_recipients integer[]) returns boolean
language sql immutable parallel safe
return p_only = p_consumer_id or p_only is null and (p_recipients is null or p_consumer_id = any (p_recipients));

-- The iids of a header consume_after: one, or the text of an array.
create or replace function mbus._predecessors(p_text text) returns text[]
language plpgsql immutable set search_path from current as $$
begin
  return array(select distinct iid from unnest(case when p_text like '{%' then p_text::text[] else array[p_text] end) iid
               where iid is not null);
exception when invalid_text_representation then
  raise exception 'invalid header consume_after: "%"', p_text
    using errcode = 'MB012', hint = 'It is an iid, or the text of an array of iids, such as {orders.1@k3f9q2,orders.2@k3f9q2}.';
end $$;

-- Blocks a message until its predecessors are done.  False if they already are.
-- Locks: for a post under a reserved iid that others wait for, one advisory lock for all such posts, because two concurrent ones could
-- create a cycle.
create or replace function mbus._block(p_queue mbus.queue, p_parcel mbus.parcel, p_due_at timestamptz) returns boolean
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_lost     constant text := coalesce(p_parcel.headers -> 'consume_after_lost', 'dmq');
  v_iids     constant text[] := mbus._predecessors(p_parcel.headers -> 'consume_after');
  v_blocked  bigint;
  v_iid      text;
  v_name     text;
  v_before   mbus.queue;
  v_number   bigint;
  v_holders  text[] := '{}';
  v_is_new   boolean := false;
begin
  perform mbus._check_isolation();    -- an older snapshot does not see what became of the predecessors
  if v_lost not in ('release', 'dmq') then
    raise exception 'unknown consume_after_lost: "%"', v_lost using errcode = 'MB012', hint = 'Use release or dmq.';
  end if;
  insert into mbus.blocked (queue_id, due_at, if_lost, number, added, expires, headers, properties, trail, recipients,
                            data_hstore, data_jsonb, data_text, data_bytea)
  select p_queue.id, p_due_at, v_lost, (p_parcel).* returning id into v_blocked;
  foreach v_iid in array v_iids loop
    v_name := split_part(v_iid, '.', 1);
    -- An unknown queue raises the same error as a forbidden one, so that names of queues cannot be probed.
    if not mbus._may_use(v_name) then
      raise exception 'user "%" may not wait for messages of queue "%"', session_user, v_name
        using errcode = 'MB013', hint = format('Grant role %I, or the role of one of its consumers.', mbus._post_role(v_name));
    end if;
    v_before := mbus._queue(v_name);
    v_number := mbus._number(v_name, v_iid);
    if not v_before.has_waiters then
      perform mbus._add_feature(v_before.id, 'waiters');
      v_is_new := true;
    end if;
    v_holders := v_holders || mbus._await(v_blocked, v_before, v_number, mbus._holders(v_before.position));
  end loop;
  if exists (select from mbus.wait w where w.queue_id = p_queue.id and w.number = p_parcel.number) then
    perform pg_advisory_xact_lock(hashtextextended('mbus.wait', 0));
    if (p_queue.id, p_parcel.number) in (
      with recursive upwards(queue_id, number) as (
        select w.queue_id, w.number from mbus.wait w where w.blocked_id = v_blocked
        union
        select w.queue_id, w.number
        from upwards u
        join mbus.blocked b on b.queue_id = u.queue_id and b.number = u.number and b.released_by is null
        join mbus.wait w on w.blocked_id = b.id)
      select u.queue_id, u.number from upwards u) then
      raise exception 'message "%" would wait for itself', mbus._iid(p_queue.name, p_parcel.number)
        using errcode = 'MB021', hint = 'A message that it names in consume_after waits for it.';
    end if;
  end if;
  if not exists (select from mbus.wait w where w.blocked_id = v_blocked) then
    delete from mbus.blocked where id = v_blocked;
    return false;
  end if;
  if v_holders <> '{}' then
    insert into mbus.nudge (blocked_id, holders) values (v_blocked, v_holders);
  end if;
  -- Sessions that run older functions do not check for waiting messages.
  if v_is_new then
    insert into mbus.nudge (blocked_id, not_before) values (v_blocked, mbus.now() + interval '2 seconds');
  end if;
  return true;
end $$;

-- Records the consumers that still have to handle one predecessor.
--   p_open  open transactions that may have posted or reserved it and are not visible
-- Returns those of them whose end determines whether the predecessor is done; it counts as reserved until then.
create or replace function mbus._await(p_blocked bigint, p_queue mbus.queue, p_number bigint, p_open text[]) returns text[]
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_consumer integer;
  v_state    text;
  v_is_seen  boolean := false;
begin
  -- Waits for a transaction that is posting it, and makes later transactions wait for ours.
  perform from mbus.reserved r where r.queue_id = p_queue.id and r.number = p_number for key share;
  if found then
    insert into mbus.wait (blocked_id, queue_id, number) values (p_blocked, p_queue.id, p_number);
    return '{}';
  end if;
  for v_consumer in select c.id from mbus.consumer c where c.queue_id = p_queue.id loop
    v_state := mbus._state(p_queue, v_consumer, p_number);
    continue when v_state = 'gone';
    v_is_seen := true;
    insert into mbus.wait (blocked_id, queue_id, number, consumer_id)
    values (p_blocked, p_queue.id, p_number, v_consumer);
    if v_state = 'held' then
      insert into mbus.nudge (blocked_id) values (p_blocked);
    end if;
  end loop;
  if v_is_seen or p_open = '{}' then return '{}'; end if;
  insert into mbus.wait (blocked_id, queue_id, number) values (p_blocked, p_queue.id, p_number);
  return p_open;
end $$;

-- Releases what waits for messages of a queue that were handled, by one consumer or (null) by all.  Called in the transaction that
-- consumes, acks or takes them.
create or replace function mbus._done(p_queue_id integer, p_consumer_id integer, p_numbers bigint[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  perform mbus._saga_done(p_queue_id, p_consumer_id, p_numbers);
  perform mbus._let_go(p_queue_id, p_consumer_id, p_numbers);
end $$;

-- Releases the messages that wait for these.  After 100 of them the rest is left to maintenance.
create or replace function mbus._let_go(p_queue_id integer, p_consumer_id integer, p_numbers bigint[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_blocked bigint[];
begin
  with chosen as (
    select w.ctid as at from mbus.wait w
    where w.queue_id = p_queue_id and w.number = any (p_numbers) and w.done_by is null
      and (p_consumer_id is null or w.consumer_id is not distinct from p_consumer_id)
    limit 101 for update),
  marked as (
    update mbus.wait w set done_by = pg_current_xact_id() from chosen c where w.ctid = c.at returning w.blocked_id)
  select array_agg(distinct m.blocked_id) into v_blocked from marked m;
  if v_blocked is null then return; end if;
  if cardinality(v_blocked) > 100 then
    insert into mbus.nudge (queue_id, number, consumer_id)
    select distinct w.queue_id, w.number, w.consumer_id from mbus.wait w
    where w.queue_id = p_queue_id and w.number = any (p_numbers) and w.done_by is null
      and (p_consumer_id is null or w.consumer_id is not distinct from p_consumer_id);
  end if;
  perform mbus._unblock(v_blocked);
end $$;

-- The same for one message, for calls off the hot path: first checks whether messages could wait for it.
create or replace function mbus._taken(p_queue_id integer, p_consumer_id integer, p_number bigint) returns void
language plpgsql set search_path from current as $$
begin
  if (select q.has_waiters from mbus.queue q where q.id = p_queue_id) then
    perform mbus._done(p_queue_id, p_consumer_id, array[p_number]);
  end if;
end $$;

-- Releases those of the given messages that no longer wait for anything.
create or replace function mbus._unblock(p_blocked bigint[]) returns bigint
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_free  record;
  v_held  bigint[];
  v_count bigint := 0;
begin
  v_held := array(select b.id from mbus.blocked b where b.id = any (p_blocked) and b.released_by is null
                  order by b.id for update skip locked);
  insert into mbus.nudge (blocked_id)
  select b.id from mbus.blocked b where b.id = any (p_blocked) and b.released_by is null and b.id <> all (v_held);
  for v_free in
    with freed as (
      update mbus.blocked b set released_by = pg_current_xact_id()
      where b.id = any (v_held) and not exists (select from mbus.wait w where w.blocked_id = b.id and w.done_by is null)
      returning b.queue_id, b.due_at, mbus._parcel(b) as parcel)
    , delayed as (
      insert into mbus.delayed (queue_id, due_at, number, added, expires, headers, properties, trail, recipients,
                                data_hstore, data_jsonb, data_text, data_bytea)
      select f.queue_id, f.due_at, (f.parcel).* from freed f where f.due_at > mbus.now())
    select f.queue_id,
           array_agg(f.parcel order by (f.parcel).number) filter (where f.due_at is null or f.due_at <= mbus.now()) as parcels,
           count(*) as rows
    from freed f group by f.queue_id
  loop
    perform mbus._put_many(v_free.queue_id, v_free.parcels);
    v_count := v_count + v_free.rows;
  end loop;
  return v_count;
end $$;

-- Called when a message is posted (again) under an iid that others may wait for: messages that this transaction has released because of it
-- are blocked again, and messages that waited for the reserved iid now wait for the consumers.
create or replace function mbus._posted(p_queue mbus.queue, p_number bigint, p_recipients integer[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_row     mbus.blocked;
  v_blocked bigint[];
begin
  -- Removed from the ring first, because released messages could not be recognised afterwards.
  for v_row in
    select b.* from mbus.blocked b
    where b.released_by = pg_current_xact_id()
      and b.id in (select w.blocked_id from mbus.wait w where w.queue_id = p_queue.id and w.number = p_number
                     and w.done_by = pg_current_xact_id())
  loop
    perform mbus._take_number(v_row.queue_id, null, v_row.number);
    if found then
      update mbus.blocked b set released_by = null where b.id = v_row.id;
    end if;
  end loop;
  update mbus.wait w set done_by = null
  where w.queue_id = p_queue.id and w.number = p_number and w.done_by = pg_current_xact_id();
  with unposted as (
    delete from mbus.wait w where w.queue_id = p_queue.id and w.number = p_number and w.consumer_id is null
    returning w.blocked_id)
  , posted as (
    insert into mbus.wait (blocked_id, queue_id, number, consumer_id)
    select u.blocked_id, p_queue.id, p_number, c.id
    from unposted u join mbus.consumer c on c.queue_id = p_queue.id and (p_recipients is null or c.id = any (p_recipients)))
  select array_agg(u.blocked_id) into v_blocked from unposted u;
  -- A message that no consumer gets is done as soon as it is posted.
  if v_blocked is not null then
    perform mbus._unblock(v_blocked);
  end if;
  perform mbus._saga_posted(p_queue.id, p_number);
end $$;

-- Called when a message that this transaction took is posted again, here or on another queue: messages that waited for it continue to wait.
create or replace function mbus._posted_back(
  p_taken_queue_id integer, p_taken_number bigint, p_taken_by integer[], p_queue mbus.queue, p_number bigint,
  p_recipients integer[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
begin
  perform mbus._posted(q, p_taken_number, null) from mbus.queue q where q.id = p_taken_queue_id and q.has_waiters;
  if not found or (p_taken_queue_id, p_taken_number) = (p_queue.id, p_number) then return; end if;
  update mbus.wait w set queue_id = p_queue.id, number = p_number, consumer_id = null
  where w.queue_id = p_taken_queue_id and w.number = p_taken_number and w.consumer_id = any (p_taken_by) and w.done_by is null;
  if not found then return; end if;
  if not p_queue.has_waiters then perform mbus._add_feature(p_queue.id, 'waiters'); end if;
  perform mbus._posted(p_queue, p_number, p_recipients);
end $$;

-- Called for messages that disappeared without being handled: those that wait for them are released or go to the dmq, according to their
-- header consume_after_lost.
create or replace function mbus._lost(p_queue_id integer, p_consumer_id integer, p_numbers bigint[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_row  mbus.blocked;
  v_name text;
begin
  perform mbus._saga_failed(p_queue_id, p_consumer_id, p_numbers, 'its message is lost', true);
  select name into v_name from mbus.queue where id = p_queue_id;
  for v_row in
    delete from mbus.blocked b
    where b.released_by is null and b.if_lost = 'dmq' and b.id in (
      select w.blocked_id from mbus.wait w
      where w.queue_id = p_queue_id and w.number = any (p_numbers) and w.done_by is null
        and (p_consumer_id is null or w.consumer_id = p_consumer_id))
    returning b.*
  loop
    perform mbus._bury(c.id, mbus._parcel(v_row), v_row.number,
                       'lost: a message of queue ' || v_name || ' named in consume_after is gone without having been handled')
    from mbus.consumer c
    where c.queue_id = v_row.queue_id and (v_row.recipients is null or c.id = any (v_row.recipients));
  end loop;
  perform mbus._done(p_queue_id, p_consumer_id, p_numbers);
end $$;

-- Gives up iids that were reserved a week ago and not posted since: messages that wait for them treat them as lost.
create or replace function mbus._forget_reserved() returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_old record;
begin
  for v_old in
    with old as (delete from mbus.reserved r where r.reserved_at < (select mbus.now()) - interval '7 days' returning r.*)
    select o.queue_id, array_agg(o.number) as numbers from old o group by o.queue_id
  loop
    perform mbus._lost(v_old.queue_id, null, v_old.numbers);
  end loop;
end $$;

-- Processes nudges, and deletes released messages.  Sees only committed work.
create or replace function mbus._resolve(p_limit integer) returns bigint
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_nudge   mbus.nudge;
  v_before  record;
  v_blocked bigint[];
  v_open    text[];
  v_count   bigint := 0;
begin
  -- The condition on the id allows an index scan; other scans are disabled here.
  if exists (select from mbus.nudge n where n.id > 0 and n.holders is not null) then
    v_open := array(select distinct l.virtualtransaction from pg_locks l);
  end if;
  for v_nudge in
    delete from mbus.nudge n where n.id in (
      select w.id from mbus.nudge w
      where (w.not_before is null or w.not_before <= mbus.now()) and (w.holders is null or not w.holders && v_open)
      order by w.id limit p_limit for update skip locked)
    returning n.*
  loop
    if v_nudge.holders is not null then
      -- The transactions on which it depended have ended, so the messages to wait for are visible now.
      perform from mbus.blocked b where b.id = v_nudge.blocked_id and b.released_by is null for update;
      for v_before in
        delete from mbus.wait w where found and w.blocked_id = v_nudge.blocked_id and w.consumer_id is null and w.done_by is null
        returning w.queue_id, w.number
      loop
        perform mbus._await(v_nudge.blocked_id, q, v_before.number, '{}') from mbus.queue q where q.id = v_before.queue_id;
      end loop;
    end if;
    if v_nudge.blocked_id is null then
      v_blocked := array(
        select distinct w.blocked_id from mbus.wait w
        where w.queue_id = v_nudge.queue_id and w.number = v_nudge.number and w.done_by is null
          and w.consumer_id is not distinct from v_nudge.consumer_id limit 10000);
      if cardinality(v_blocked) = 10000 then
        insert into mbus.nudge (queue_id, number, consumer_id)
        values (v_nudge.queue_id, v_nudge.number, v_nudge.consumer_id);
      end if;
    else
      v_blocked := array[v_nudge.blocked_id];
    end if;
    perform mbus._check_waits(v_blocked);
    v_count := v_count + mbus._unblock(v_blocked);
  end loop;
  delete from mbus.blocked b where b.id in (
    select w.id from mbus.blocked w where w.released_by is not null limit 5000 for update skip locked);
  return v_count;
end $$;

-- Marks predecessors that are done.  While another transaction holds one of them, it is checked again.
create or replace function mbus._check_waits(p_blocked bigint[]) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_before record;
  v_state  text;
begin
  for v_before in
    select distinct w.queue_id, w.number, w.consumer_id from mbus.wait w
    where w.blocked_id = any (p_blocked) and w.done_by is null and w.consumer_id is not null
  loop
    select mbus._state(q, v_before.consumer_id, v_before.number) into v_state from mbus.queue q where q.id = v_before.queue_id;
    if coalesce(v_state, 'gone') = 'gone' then
      update mbus.wait w set done_by = pg_current_xact_id()
      where w.blocked_id = any (p_blocked) and w.done_by is null and w.queue_id = v_before.queue_id
        and w.number = v_before.number and w.consumer_id = v_before.consumer_id;
    elsif v_state = 'held' then
      insert into mbus.nudge (blocked_id)
      select distinct w.blocked_id from mbus.wait w
      where w.blocked_id = any (p_blocked) and w.queue_id = v_before.queue_id and w.number = v_before.number;
    end if;
  end loop;
end $$;
