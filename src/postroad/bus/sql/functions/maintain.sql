-- Runs the maintenance of queues: posts due runs of schedules and batches of replays, makes due messages ready, ends leases, deletes
-- expired messages, raises the hints, rotates and reclaims slots.  Returns one row per queue that it changed,
-- of those that the caller has permission for.  With a name, only that queue.
--
-- The bus is correct without it.  Any session may call it, about twice a second, in its own transaction; concurrent calls share the work.
-- Locks: the queue's advisory lock and the tables that are truncated, all without waiting.
create or replace function mbus.maintain(qname text default null)
returns table (queue text, rotated bigint, reclaimed bigint, released bigint, ended bigint, expired bigint, settled bigint)
language plpgsql security definer set search_path from current as $$
declare
  v_now     constant timestamptz := mbus.now();
  -- The markers that this session recorded in its last run; without them the run does more work.
  v_markers   jsonb := mbus._recall_markers();
  -- A transaction that has already taken messages must not raise hints past them: it may roll back, but sequences do not.  It must not open
  -- a slot that it created itself, either.
  v_is_first constant boolean := pg_current_xact_id_if_assigned() is null;
  -- Counts the runs of all sessions.  The time would not do: the period of a caller may never coincide with a fixed fraction of the
  -- seconds.
  v_tick    constant bigint := nextval('mbus.tick');
  -- The start of the search: the last run, or the start of transactions that had not committed then.
  v_recent  constant timestamptz := case when v_tick % 64 = 0 then '-infinity'
    else least(to_timestamp(pg_sequence_last_value('mbus.attended') - 3),
               coalesce((v_markers -> 'aside' ->> 'since')::timestamptz, '-infinity')) end;
  -- For one queue, and in some runs for all queues, everything that is due.
  v_since   constant timestamptz := case when qname is not null then '-infinity' else v_recent end;
  -- Leases last for seconds, and searching for ended ones reads up to 1,000 rows of each table: twice a second is enough.
  v_second  constant double precision := extract(epoch from v_now);
  v_is_ending constant boolean := qname is not null or coalesce(abs(v_second - (v_markers ->> 'ended_at')::double precision) >= 0.4, true);
  v_has_more boolean := false;
  v_from    timestamptz;
  v_left    timestamptz;
  v_fresh   jsonb;
  v_mark    jsonb;
  v_queue   mbus.queue;
  v_replayed jsonb := '{}';
  v_is_deep boolean;
begin
  perform mbus._check_isolation();
  if mbus.is_restored() then
    perform mbus.after_restore();
    return;
  end if;
  perform mbus._maintain_temporary();
  if qname is not null then
    perform mbus._queue(qname);
  else
    perform mbus._run_schedules();
    v_replayed := mbus._run_replays();
  end if;
  perform setval('mbus.attended', extract(epoch from v_now)::bigint);
  if v_is_first and pg_relation_size('mbus.leased') > 0 then
    v_markers := v_markers || jsonb_build_object('leases', mbus._raise_lease_floor(v_markers -> 'leases'));
  end if;

  for v_queue in select * from unnest(mbus._restless(qname, v_tick, v_since)) loop
    -- The queue is read again under its lock, because it may have been dropped or altered in the meantime.
    select * into v_queue from mbus.queue q where q.id = v_queue.id;
    continue when not found;
    queue := v_queue.name;
    v_fresh := mbus._mark(v_queue);
    -- A run that could not move all due messages records where it began.
    v_left := v_markers -> v_queue.id::text ->> 'since';
    -- An idle queue is visited rarely, so a visit covers everything that has expired since the last one.
    v_from := case when (v_tick + v_queue.id) % 1024 = 0 then '-infinity' else least(v_since, v_left) end;
    released := mbus._release(v_queue, null, v_from, 1000) + coalesce((v_replayed ->> v_queue.id::text)::bigint, 0);
    expired := mbus._expire(v_queue, 1000, v_from, least(v_since, v_left));
    if v_is_first then perform mbus._publish_settled(v_queue, v_markers -> v_queue.id::text); end if;
    -- The newer marker if all transactions that posted then have ended, otherwise that of the last run.
    v_mark := case when v_is_first then mbus._settled_mark(v_queue.position, v_fresh, v_markers -> v_queue.id::text) end;
    settled := coalesce(mbus._settle(v_queue, (v_mark ->> 'bound')::bigint, (v_mark ->> 'tail')::bigint), 0);
    -- After the hints, because messages that a rollback restores must not be behind a hint.
    ended := case when v_is_ending then mbus._end_leases(v_queue, null, least(v_since, v_left), 1000) else 0 end;
    if greatest(ended, released, expired) >= 1000 then
      v_has_more := true;
      v_fresh := v_fresh || jsonb_build_object('since', v_from);
    end if;
    v_markers := v_markers || jsonb_build_object(v_queue.id,
      case when v_mark is null then coalesce(v_markers -> v_queue.id::text, v_fresh) || (v_fresh - '{tail,bound,open}'::text[])
           else v_fresh end);
    rotated := case when v_is_first then mbus._rotate(v_queue) else 0 end;
    reclaimed := mbus._reclaim(v_queue);
    perform mbus._sample(v_queue, v_now);
    perform setval(v_queue.swept, mbus._swept(v_queue, (v_fresh ->> 'bound')::bigint, v_now));
    if ended + released + expired + settled + rotated + reclaimed > 0 and mbus._may_use(v_queue.name) then
      return next;
    end if;
  end loop;
  -- Ordering is not per queue: one session at a time processes the messages that others left undecided.
  if pg_try_advisory_xact_lock(mbus._lock_class(), 0) then
    perform mbus._resolve(1000);
    perform mbus._saga_check(100);
    if v_since = '-infinity' then
      perform mbus._forget_reserved();
      perform mbus._forget_sagas();
      perform mbus._forget_keys();
    end if;
    -- Last, because it may lock a table against readers until the end of the transaction.
    if v_tick % 8 = 0 or pg_table_size(format('mbus.delayed_%s', pg_sequence_last_value('mbus.delayed_tail'))::regclass) >= mbus._slot_bytes() then
      perform mbus._rotate_delayed();
    end if;
    if v_tick % 8 = 0 or v_since = '-infinity' then
      perform mbus._drop_retained();
    end if;
    if v_since = '-infinity' then
      v_is_deep := coalesce((v_markers ->> 'traffic_at')::timestamptz not between v_now - interval '5 minutes' and v_now, true);
      perform mbus._record_traffic(v_now, v_is_deep);
      v_markers := v_markers || case when v_is_deep then jsonb_build_object('traffic_at', v_now) else '{}' end;
    end if;
    v_markers := v_markers || jsonb_build_object('keys', mbus._rotate_dedup(v_markers -> 'keys'));
    if v_tick % 8 = 0 or v_since = '-infinity' then
      v_markers := v_markers || jsonb_build_object('unique', mbus._forget_unique(v_markers -> 'unique'));
    end if;
  end if;
  if v_is_ending and not v_has_more then v_markers := v_markers || jsonb_build_object('ended_at', v_second); end if;
  perform mbus._keep_markers(v_markers || jsonb_build_object('aside', mbus._mark_aside(v_markers -> 'aside', v_now)));
end $$;
