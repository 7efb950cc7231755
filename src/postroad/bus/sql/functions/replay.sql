-- Replay: mbus.maintain posts the consumed messages of a consumer to it again, in batches.  A batch and its position are stored in one
-- transaction, so each message is posted once, however many sessions run maintenance or are killed.

-- Posts the stored messages that a consumer has consumed to it again, in order of posting, and returns the id of the replay; see
-- mbus.replays.  Each message has the same iid, the header replayed with that id, no expiry and its attempts counted from
-- zero; enqueue_time is the time of the first post.  It is delivered after the messages that are ready by then, and is not posted to
-- followers; dedup_key and consume_after have no effect again.
--   since, until  times of posting; the default is everything before this call
--   selector      a condition over t, as of a consumer; the consumer's own selector decides, too
--   rate          messages per second at most
--   again         begins another replay after one with the same times and selector
-- Repeating a call continues its replay with the given rate, even if it was stopped.  With until a finished replay is not repeated either.
-- Omitted: messages that the consumer has yet to consume, dead ones, messages of sagas, and those of other replays.
-- Errors: MB001, MB002, MB008 selector, MB012 nothing is retained, the queue belongs to sagas, or an invalid rate.
create or replace function mbus.replay(
  qname text, cname text, since timestamptz default '-infinity', until timestamptz default null, selector text default null,
  rate integer default null, again boolean default false, started_by text default session_user) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._queue(qname);
  v_consumer constant mbus.consumer := mbus._consumer(v_queue, cname);
  v_replay   mbus.replay;
begin
  perform mbus._check_replay(v_queue, $3, $5);
  if rate < 1 then
    raise exception 'a replay cannot post % messages per second', rate using errcode = 'MB012', hint = 'Choose a rate of 1 or more.';
  end if;
  -- If two calls are equal, the second one continues the replay of the first.
  perform from mbus.consumer c where c.id = v_consumer.id for no key update;
  select * into v_replay from mbus.replay r
  where r.consumer_id = v_consumer.id and not r.is_start and (r.since, r.until, r.selector) is not distinct from ($3, $4, $5)
    and (r.finished_at is null or r.error is not null or r.until is not null and not again)
  order by r.id desc limit 1;
  if not found then
    perform mbus._pin(v_queue.position);
    insert into mbus.replay (queue_id, consumer_id, since, until, selector, rate, first_id, bound, started_at, started_by)
    values (v_queue.id, v_consumer.id, $3, $4, $5, $6, mbus._first_stored(v_queue.id, $3), pg_sequence_last_value(v_queue.position),
            mbus.now(), coalesce($8, session_user))
    returning * into v_replay;
  else
    update mbus.replay r
    set rate = $6, error = null, finished_at = case when r.error is null then r.finished_at end where r.id = v_replay.id;
  end if;
  return v_replay.id;
end $$;

create or replace function mbus._first_stored(p_queue_id integer, p_since timestamptz) returns bigint
language sql stable set search_path from current as $$
  select min(r.first_id) from mbus.retained r where r.queue_id = p_queue_id and r.last_at >= p_since
$$;

create or replace function mbus._check_replay(p_queue mbus.queue, p_since timestamptz, p_selector text) returns void
language plpgsql set search_path from current as $$
begin
  if p_queue.name = 'sagas' or p_since is null or not mbus._is_retained(p_queue) then
    raise exception 'queue "%" has no messages to replay', p_queue.name
      using errcode = 'MB012', hint = case when mbus._is_retained(p_queue) then 'Replay the messages of another queue since a time.'
                                           else 'Retain its messages with mbus.alter_queue(retain => …) first.' end;
  end if;
  perform mbus._check_selector(p_queue, p_selector);
end $$;

-- Counts the messages that mbus.replay would post, by reading all stored messages of that time.  Read-only.
-- Errors: MB001, MB002, MB008 selector, MB012 nothing is retained, or the queue belongs to sagas.
create or replace function mbus.count_replay(
  qname text, cname text, since timestamptz default '-infinity', until timestamptz default null, selector text default null) returns bigint
language plpgsql security definer set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_queue    constant mbus.queue := mbus._queue(qname);
  v_consumer constant mbus.consumer := mbus._consumer(v_queue, cname);
  v_until    constant timestamptz := coalesce($4, 'infinity');
  v_count    bigint;
begin
  perform mbus._check_replay(v_queue, $3, $5);
  execute format('select count(distinct m.number) from (%s) m',
    mbus._replay_query(v_queue, v_consumer, $5, mbus._stored_messages(v_queue, v_consumer.id, $3, v_until, 0), $3, v_until))
  into v_count using qname, 0, $3, v_until, v_consumer.id;
  return v_count;
end $$;

-- Ends a replay; the messages that it has posted stay.  mbus.replay with the same arguments continues it, mbus.continue_replay by its id.
-- Returns false if it had ended.
create or replace function mbus.stop_replay(id bigint, stopped_by text default session_user) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  update mbus.replay r set finished_at = mbus.now(), error = 'stopped by ' || coalesce($2, session_user)
  where r.id = $1 and r.finished_at is null;
  return found;
end $$;

-- Continues a replay that was stopped or has failed, where it ended.  Returns false if it was neither, or if its consumer begins in the past
-- and was resumed.
create or replace function mbus.continue_replay(id bigint) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  update mbus.replay r set finished_at = null, error = null where r.id = $1 and r.error is not null and not coalesce(r.is_start and r.place = r.bound, false);
  return found;
end $$;

-- A query over stored messages t, restricted to those that the consumer has consumed, with number and is_copy.
--   $1 queue  $5 consumer
create or replace function mbus._replay_query(
  p_queue mbus.queue, p_consumer mbus.consumer, p_selector text, p_stored text, p_since timestamptz, p_until timestamptz) returns text
language sql stable set search_path from current as $$
  select format($query$
    select t.*, n.number, t.origin is not null as is_copy
    from (%1$s) t cross join lateral (select coalesce(t.origin, t.id) as number) n
    where not coalesce(t.raw ?| '{saga,replayed}', false) and (%2$s) and (%3$s)
      -- The row is a copy of a message that is also stored: a retry, or a lease that was moved.
      and (t.origin is null or not exists (%4$s))
      and not exists (select from mbus.dmq d where d.queue_id = %5$s and d.number = n.number and d.consumer_id = $5)
      and not exists (select from mbus.delayed d where d.queue_id = %5$s and d.number = n.number and mbus._is_for($5, d.consumer_id, d.recipients))
      and not exists (select from mbus.leased l where l.queue_id = %5$s and l.number = n.number and l.consumer_id = $5)
      and not exists (%6$s)$query$,
    p_stored, coalesce(p_consumer.selector || e'\n', 'true'), coalesce(p_selector || e'\n', 'true'),
    mbus._stored_query(p_queue, p_consumer.id, 'select from mbus.%1$I o where o.id = t.origin and o.origin is null', p_since, p_until),
    p_queue.id,
    (select string_agg(format('select from mbus.%I c where c.origin = n.number', c.ready_table), ' union all ')
     from mbus._tables(p_queue) c where c.consumer_id = p_consumer.id))
$$;

-- The last id that may have been posted without a new consumer that begins in the past; null while transactions are open that were open at
-- the first call, because their sessions may still run functions from before the consumer.  The consumer is paused, so it has consumed
-- nothing that was posted since.  Messages outside the ring that were posted without it get it as a recipient.
create or replace function mbus._start_bound(p_queue mbus.queue, p_consumer mbus.consumer, p_replay mbus.replay) returns bigint
language plpgsql set search_path from current as $$
declare
  v_table text;
  -- The type of a backend is hidden from other roles; autovacuum has no user.
  v_open  constant text[] := array(
    select l.virtualtransaction from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'virtualxid' and a.datname = current_database() and a.usesysid is not null and l.pid <> pg_backend_pid());
begin
  if p_replay.waits_for is null or p_replay.waits_for && v_open then
    update mbus.replay r set waits_for = coalesce(r.waits_for, v_open) where r.id = p_replay.id;
    return null;
  end if;
  foreach v_table in array '{delayed,blocked}'::text[] loop
    execute format($query$
      update mbus.%1$I d set recipients = d.recipients || $1
      where d.queue_id = $2 and not $1 = any (d.recipients) and d.added >= $3 and %2$s is null and exists (
        select from (select d.number as id, mbus._iid($4, d.number) as iid, d.added, d.expires, %3$s as headers, d.properties, d.%4$I as data,
                            (d.trail ->> 'delayed_until')::timestamptz as delayed_until, null::integer[] as received) t
        where (%5$s))$query$, v_table, case v_table when 'delayed' then 'd.consumer_id' else 'd.released_by' end,
      mbus._fill('headers_delivered', mbus._queue_values(p_queue) || '{"added": "d.added", "headers": "d.headers"}'),
      'data_' || p_queue.payload, coalesce(p_consumer.selector || e'\n', 'true'))
    using p_consumer.id, p_queue.id, p_replay.since, p_queue.name;
  end loop;
  perform mbus._pin(p_queue.position);
  -- Read last: a transaction that released such a message in the meantime has committed, and the id is smaller.
  return pg_sequence_last_value(p_queue.position);
end $$;

-- Runs a batch of each replay.  Returns the number of posted messages by the id of their queue.
-- Locks: rows of replays, skipped when another session has them, then what posts lock.  Called before maintenance locks a queue.
create or replace function mbus._run_replays() returns jsonb
language plpgsql set search_path from current as $$
declare
  v_replay mbus.replay;
  v_count  bigint;
  v_counts jsonb := '{}';
  v_error  text;
begin
  for v_replay in
    select * from mbus.replay r where r.finished_at is null order by r.ran_at nulls first, r.id limit 3 for no key update skip locked
  loop
    begin
      v_count := mbus._run_replay(v_replay);
      v_counts := v_counts || jsonb_build_object(v_replay.queue_id, v_count + coalesce((v_counts ->> v_replay.queue_id::text)::bigint, 0));
    exception
      when lock_not_available or transaction_rollback or insufficient_resources or operator_intervention then raise;
      when others then
        v_error := sqlerrm;
        update mbus.replay r set finished_at = mbus.now(), error = v_error where r.id = v_replay.id;
    end;
  end loop;
  return v_counts;
end $$;

-- Posts up to 5,000 messages of a replay.
create or replace function mbus._run_replay(p_replay mbus.replay) returns bigint
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_now      constant timestamptz := mbus.now();
  v_queue    mbus.queue;
  v_consumer mbus.consumer;
  -- Messages that were not posted in time are not caught up.
  v_from     constant timestamptz := greatest(coalesce(p_replay.ran_at, p_replay.started_at), v_now - interval '2 seconds');
  v_most     constant integer := case when p_replay.rate is null then 5000
                                      else least(5000, floor(p_replay.rate * extract(epoch from v_now - v_from))) end;
  v_until    constant timestamptz := coalesce(p_replay.until, 'infinity');
  v_place    bigint := p_replay.place;
  v_upto     bigint;
  v_count    bigint := 0;
  v_batch    record;
begin
  if v_most < 1 then return 0; end if;
  select * into v_queue from mbus.queue q where q.id = p_replay.queue_id;
  select * into v_consumer from mbus.consumer c where c.id = p_replay.consumer_id;
  if p_replay.bound is null then
    p_replay.bound := mbus._start_bound(v_queue, v_consumer, p_replay);
    if p_replay.bound is null then return 0; end if;
  end if;
  -- Each round reads the segments up to the end of the next one, so that a batch that matches little does not read everything.
  for v_round in 1 .. 20 loop
    exit when v_count >= v_most or v_place >= p_replay.bound;
    select least(p_replay.bound, min(r.last_id)) into v_upto from mbus.retained r
    where r.queue_id = v_queue.id and r.last_id > v_place and r.last_at >= p_replay.since and r.first_at < v_until;
    execute format($query$
      with stored as materialized (select * from (%1$s) s order by s.id limit 5000),
      hit as materialized (select * from (%2$s) h order by h.id limit $6),
      copy as (
        insert into mbus.replay_copy (replay_id, number) select $7, h.number from hit h where h.is_copy
        on conflict do nothing returning number),
      first as (
        select distinct on (h.number) h.* from hit h where not h.is_copy or h.number in (select c.number from copy c) order by h.number, h.id)
      select (select count(*) from stored) as stored, (select count(*) from hit) as hits,
             (select max(s.id) from stored s) as last_stored, (select max(h.id) from hit h) as last_hit,
             array(select row(t.number, $8, null, hstore('enqueue_time', t.added::text) || coalesce(t.raw, '') || hstore('replayed', $7::text),
                              t.properties, null, array[$5], %3$s)::mbus.parcel from first t order by t.id) as parcels$query$,
      mbus._stored_messages(v_queue, v_consumer.id, p_replay.since, v_until, v_place, format('and g.id <= %s order by g.id limit 5000', v_upto)),
      mbus._replay_query(v_queue, v_consumer, p_replay.selector, 'select * from stored', p_replay.since, v_until),
      replace(mbus._data_columns(v_queue.payload), 'g.', 't.'))
    into v_batch using v_queue.name, v_place, p_replay.since, v_until, v_consumer.id, v_most - v_count, p_replay.id, v_now;
    perform mbus._put_many(v_queue.id, v_batch.parcels);
    v_place := case when v_batch.hits = v_most - v_count then v_batch.last_hit when v_batch.stored = 5000 then v_batch.last_stored else v_upto end;
    v_count := v_count + cardinality(v_batch.parcels);
  end loop;
  update mbus.replay r
  set bound = p_replay.bound, place = v_place, messages = r.messages + v_count, finished_at = case when v_place >= p_replay.bound then v_now end,
      ran_at = case when r.rate is null then v_now else v_from + make_interval(secs => v_most::double precision / r.rate) end
  where r.id = p_replay.id;
  if v_place >= p_replay.bound then
    delete from mbus.replay_copy c where c.replay_id = p_replay.id;
    if p_replay.is_start then perform mbus.resume(v_queue.name, v_consumer.name); end if;
  end if;
  return v_count;
end $$;
