-- Adds a durable subscriber.  It gets messages that are posted from now on and match its selector.
--
--   start_from  earliest or a time: it also gets the messages that were posted since then and are retained, or not consumed yet.  It
--               is paused until maintenance has posted them as a replay, which begins when all open transactions have ended
-- The second consumer of a queue changes it from direct to fanout, see README.md: the queue's tables are
-- locked while its backlog is recorded for the first consumer, so on a long queue this takes a while.
-- noindex is accepted as in earlier versions; selectors are evaluated at post time and need no index.
--   contract  message: messages are taken one by one, by any number of workers.  cursor: they are taken in order, one batch at a time, and
--             no row of a message is locked, changed or deleted; see internal/cursor.sql
-- Errors: MB001, MB004 exists, MB005, MB006, MB007 names, MB008 selector, MB012 start_from or contract, MB017 busy.
create or replace function mbus.create_consumer(
  qname text, cname text, selector text default null, noindex boolean default false, start_from text default null,
  contract text default 'message') returns void
language plpgsql security definer set search_path from current set lock_timeout = '10s' as $$
declare
  v_queue mbus.queue;
  v_start constant timestamptz := mbus._start_time(start_from);
  v_id    integer;
  v_ready text;
  v_last  bigint;
begin
  -- Delayed messages must not be moved in the meantime, see mbus._rotate_delayed.
  perform mbus._lock_triggers();
  v_queue := mbus._alter((mbus._queue(qname)).id);
  perform mbus._check_name('consumer', cname);
  perform mbus._check_length(qname, cname);
  if exists (select from mbus.consumer where queue_id = v_queue.id and name = cname) then
    raise exception 'queue "%" already has a consumer "%"', qname, cname
      using errcode = 'MB004', hint = 'Drop it first, or choose another name.';
  end if;
  perform mbus._check_collision(mbus._consumer_functions(qname, cname));
  perform mbus._check_selector(v_queue, selector);
  if contract is null or contract not in ('message', 'cursor') then
    raise exception 'unknown contract: "%"', coalesce(contract, 'null') using errcode = 'MB012', hint = 'Use message or cursor.';
  elsif contract = 'cursor' and (selector is not null or v_queue.has_groups or v_queue.has_waiters) then
    perform mbus._refuse_cursor(qname, case when selector is not null then 'selectors' when v_queue.has_groups then 'groups'
                                       else 'consume_after and sagas' end);
  end if;
  perform mbus._create_role(mbus._consume_role(qname, cname), v_queue.is_roles_security_model);
  if v_queue.mode = 'direct' then v_queue := mbus._fan_out(v_queue); end if;
  insert into mbus.consumer (queue_id, name, selector, contract)
  values (v_queue.id, cname, create_consumer.selector, create_consumer.contract) returning id into v_id;
  if v_start is not null then
    insert into mbus.replay (queue_id, consumer_id, since, is_start, first_id, started_at, started_by)
    values (v_queue.id, v_id, v_start, true, mbus._first_stored(v_queue.id, v_start), mbus.now(), session_user);
    insert into mbus.pause (queue_id, consumer_id, paused_at, paused_by, reason)
    values (v_queue.id, v_id, mbus.now(), session_user, 'begins in the past: resumed when its replay has ended');
  end if;
  perform mbus._create_slots(v_queue);
  v_last := pg_sequence_last_value(v_queue.position);
  perform mbus._pin(v_queue.position);
  if contract = 'cursor' then    -- it begins after what has been posted
    if to_regclass(format('mbus.%I', 'qs$' || qname || '$settled')) is null then
      perform mbus._create_sequence('qs$' || qname || '$settled');
    end if;
    for v_ready in select t.ready_table from mbus._tables(v_queue) t where t.consumer_id = v_id and v_last > 0 loop
      execute format('insert into mbus.%I (id) values ($1)', v_ready) using - v_last;
    end loop;
  end if;
  perform mbus._generate(v_queue);
exception when lock_not_available or deadlock_detected then
  raise exception 'queue "%" is busy: a transaction that posts or takes is open', qname
    using errcode = 'MB017', hint = 'Try again, or find long transactions in pg_stat_activity.';
end $$;

create or replace function mbus._start_time(p_start text) returns timestamptz
language plpgsql stable set search_path from current as $$
begin
  return case p_start when 'earliest' then '-infinity' else p_start::timestamptz end;
exception when invalid_datetime_format or datetime_field_overflow or invalid_parameter_value then
  raise exception 'invalid start_from: "%"', p_start
    using errcode = 'MB012', hint = 'Write earliest, or a time such as 2026-01-31 12:00:00+00.';
end $$;

-- Changes a direct queue to a fanout queue.  The payload tables become the log and are renamed, so
-- that a session that still runs the old functions fails instead of deleting payloads that others need.
create or replace function mbus._fan_out(p_queue mbus.queue) returns mbus.queue
language plpgsql set search_path from current as $$
declare
  v_old  record;
  v_new  mbus.queue;
  v_log  text;
  v_ready text;
begin
  execute 'lock table ' || (select string_agg(distinct format('mbus.%I', payload_table), ', ') from mbus._tables(p_queue))
       || ' in access exclusive mode';
  update mbus.queue set mode = 'fanout' where id = p_queue.id returning * into v_new;
  -- Delayed messages were meant for the existing consumer, not for later ones.
  update mbus.delayed set recipients = array(select c.id from mbus.consumer c where c.queue_id = p_queue.id)
  where queue_id = p_queue.id and recipients is null;
  update mbus.blocked set recipients = array(select c.id from mbus.consumer c where c.queue_id = p_queue.id)
  where queue_id = p_queue.id and recipients is null;
  for v_old in select * from mbus._tables(p_queue) loop
    v_log := mbus._log_name(v_new, v_old.lane, v_old.slot);
    v_ready := mbus._ready_name(v_new, v_old.consumer, v_old.lane, v_old.slot);
    execute format('alter table mbus.%I rename to %I', v_old.payload_table, v_log);
    execute format('alter index mbus.%I rename to %I', v_old.payload_table || '_id', v_log || '_id');
    execute format('alter index mbus.%I rename to %I', v_old.payload_table || '_ex', v_log || '_ex');
    execute format('drop index mbus.%I', v_old.payload_table || '_or');
    perform mbus._create_narrow_table(v_ready);
    execute format('insert into mbus.%I (id, origin, token, leased_until) select id, origin, token, leased_until from mbus.%I order by id',
                   v_ready, v_log);
    perform mbus._set_hints(v_ready, mbus._hint(v_old.payload_table), mbus._base(v_old.payload_table));
    execute format('drop sequence mbus.%I, mbus.%I', v_old.payload_table || '$hint', v_old.payload_table || '$base');
  end loop;
  perform mbus._rebuild_views(v_new);
  return v_new;
end $$;

-- Removes a subscriber with its unread messages.  The last one of a queue cannot be removed.
create or replace function mbus.drop_consumer(qname text, cname text) returns void
language plpgsql security definer set search_path from current set lock_timeout = '10s' as $$
declare
  v_queue    mbus.queue;
  v_consumer mbus.consumer;
  v_table    text;
begin
  delete from mbus.replay r where r.consumer_id = (mbus._consumer(mbus._queue(qname), cname)).id;    -- first, as in mbus.drop_queue
  -- Delayed messages must not be moved in the meantime, see mbus._rotate_delayed.
  perform mbus._lock_triggers();
  v_queue := mbus._alter((mbus._queue(qname)).id);
  v_consumer := mbus._consumer(v_queue, cname);
  if not exists (select from mbus.consumer where queue_id = v_queue.id and id <> v_consumer.id) then
    raise exception '"%" is the last consumer of queue "%"', cname, qname
      using errcode = 'MB016', hint = 'Drop the queue with mbus.drop_queue, or create another consumer first.';
  end if;
  -- Posts in flight still deliver to this consumer: wait for them before its tables go.
  execute 'lock table ' || (select string_agg(distinct format('mbus.%I', payload_table), ', ') from mbus._tables(v_queue))
       || ' in share row exclusive mode';
  for v_table in select ready_table from mbus._tables(v_queue) where consumer_id = v_consumer.id loop
    execute format('drop table mbus.%I cascade', v_table);
    execute format('drop sequence mbus.%I, mbus.%I', v_table || '$hint', v_table || '$base');
  end loop;
  perform mbus._drop_limit(v_queue, v_consumer.id);
  perform mbus._drop_functions(mbus._consumer_functions(qname, cname));
  perform mbus._delete_messages(v_queue.id, v_consumer.id);
  delete from mbus.consumer where id = v_consumer.id;
  update mbus.delayed set recipients = array_remove(recipients, v_consumer.id)
  where queue_id = v_queue.id and v_consumer.id = any (recipients);
  update mbus.blocked set recipients = array_remove(recipients, v_consumer.id)
  where queue_id = v_queue.id and v_consumer.id = any (recipients);
  perform mbus._generate(v_queue);
  if v_queue.has_waiters then    -- messages no longer wait for this consumer, and its steps of sagas are lost
    perform mbus._saga_failed(v_queue.id, v_consumer.id, array(
      select s.do_number from mbus.saga_step s where s.do_queue_id = v_queue.id and not s.is_settled
      union select s.undo_number from mbus.saga_step s where s.undo_queue_id = v_queue.id and not s.is_settled), 'its message is lost', true);
    perform mbus._let_go(v_queue.id, v_consumer.id, array(
      select distinct w.number from mbus.wait w where w.queue_id = v_queue.id and w.consumer_id = v_consumer.id));
  end if;
  perform mbus._disallow(f.oid, array[mbus._consume_role(qname, cname)])
  from pg_proc f where f.pronamespace = 'mbus'::regnamespace and f.proname = any (mbus._queue_functions(qname));
  perform mbus._drop_role(mbus._consume_role(qname, cname));
exception when lock_not_available or deadlock_detected then
  raise exception 'queue "%" is busy: a transaction that posts is open', qname
    using errcode = 'MB017', hint = 'Try again, or find long transactions in pg_stat_activity.';
end $$;

-- Changes how a consumer retries.  Null keeps a setting unchanged.
create or replace function mbus.alter_consumer(
  qname text, cname text, max_attempts integer default null, backoff interval default null, backoff_max interval default null) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_consumer mbus.consumer := mbus._consumer(mbus._queue(qname), cname);
begin
  if $3 < 1 or $4 < '0' or $5 < '0' or $4 > mbus._longest() or $5 > mbus._longest() then
    raise exception 'max_attempts must be positive, backoff and backoff_max between zero and 1000 years'
      using errcode = 'MB012', hint = 'Nothing was changed.';
  end if;
  update mbus.consumer c
  set max_attempts = coalesce($3, c.max_attempts), backoff = coalesce($4, c.backoff),
      backoff_max = coalesce($5, c.backoff_max)
  where c.id = v_consumer.id;
end $$;
