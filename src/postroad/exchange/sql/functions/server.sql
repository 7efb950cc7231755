-- Registers a server beside those that are already running: a new generation, held by the calling session.
-- A journal belongs to one root, and during a migration to a second store of the other kind.  It is bound to another root only while it
-- holds no message and no other server runs.  A server reads each store that has files, and each to which another server writes.
-- Errors: MX002 the root belongs to another journal, or a store is missing.
create or replace function exchange.take_over(
  p_root_id uuid, p_holder text, p_started_timeout double precision, p_ready_timeout double precision,
  p_defer_delay double precision, p_suspect_after integer, p_failed_policy text, p_events_kept interval,
  p_root_path text default null, p_second_root_id uuid default null, p_second_root_path text default null)
returns exchange.server
language plpgsql volatile set search_path from current as $$
declare
  v_server     exchange.server;
  v_other      exchange.member;
  v_is_bound   boolean;
  v_is_objects constant boolean := exchange._is_objects(p_root_path);
  v_is_swapped boolean;
begin
  select s.* into v_server from exchange.server s for update;
  v_is_bound := exists (select from exchange.message) or exists (select from exchange.member);
  v_is_swapped := v_is_objects <> exchange._is_objects(v_server.root_path);
  if v_is_swapped then  -- from here on its root is the store that is known of the kind of the given root
    select v_server.second_root_id, v_server.second_root_path, v_server.root_id, v_server.root_path
    into v_server.root_id, v_server.root_path, v_server.second_root_id, v_server.second_root_path;
  end if;
  if v_is_bound and v_server.root_id is distinct from p_root_id and (p_second_root_id is null or exists (select from exchange._files(v_is_objects))) then
    raise exception 'the messages of this database lie in another root folder'
      using errcode = 'MX002', hint = 'Set --root to the folder that was used before, or use another database.';
  end if;
  if v_is_bound and v_server.second_root_id <> coalesce(p_second_root_id, gen_random_uuid())
     and (v_is_swapped or v_server.is_migrating or p_second_root_id is not null) and exists (select from exchange._files(not v_is_objects)) then
    raise exception 'files of this exchange are in %, which this server does not use', v_server.second_root_path
      using errcode = 'MX002', hint = 'Set exchange.second_root to it until `postroad exchange migration` reports that nothing is left there.';
  end if;
  select m.* into v_other from exchange.member m
  where m.root_id = any (array[p_root_id, p_second_root_id]) is not true
     or p_root_id = any (array[m.root_id, m.second_root_id]) is not true order by m.epoch limit 1;
  if found then
    raise exception 'the server % runs with other stores than this one', v_other.holder
      using errcode = 'MX002', hint = 'Set exchange.second_root to the store on all servers first; then change exchange.root.';
  end if;
  -- Created here and not at install, because its roles are named after the database, and a clone has another name.
  if not exists (select from mbus.queue q where q.name = 'exchange_events') then
    perform mbus.create_queue('exchange_events', payload => 'jsonb');
  end if;
  -- Without a second store nothing can be there; such a message has no file at all.
  update exchange.message m set object = null
  where p_second_root_id is null and v_server.is_migrating and not v_is_objects and m.object is not null;
  update exchange.server s
  set root_id = p_root_id, root_path = p_root_path, epoch = s.epoch + 1, holder = p_holder, started_at = exchange.now(),
      second_root_id = coalesce(p_second_root_id, case when v_is_bound then v_server.second_root_id end),
      second_root_path = coalesce(p_second_root_path, case when v_is_bound then v_server.second_root_path end),
      is_migrating = p_second_root_id is not null or exists (select from exchange.member m where m.second_root_id is not null),
      -- No time passes while no server runs.
      served_seconds = case when exists (select from exchange.member) then exchange._served(s) else s.served_seconds end,
      runs = case when exists (select from exchange.member) then s.runs else (gen_random_uuid()::text || s.runs)[:10] end,
      seen_at = exchange.now(), started_timeout = p_started_timeout, ready_timeout = p_ready_timeout, defer_delay = p_defer_delay,
      suspect_after = p_suspect_after, failed_policy = p_failed_policy, events_kept = p_events_kept
  returning s.* into v_server;
  insert into exchange.member (epoch, holder, root_id, second_root_id) values (v_server.epoch, p_holder, p_root_id, p_second_root_id);
  perform exchange.hold(v_server.epoch);
  return v_server;
end $$;

-- Whether a root is an object store; otherwise it is a folder.
create or replace function exchange._is_objects(p_root_path text) returns boolean
language sql immutable parallel safe as $$ select coalesce(starts_with(p_root_path, 's3://'), false) $$;

-- The sizes of the files in the object store, or in the folder.  Reads all messages.
create or replace function exchange._files(p_is_objects boolean) returns setof bigint
language sql stable as $$
  select m.size from exchange.message m
  where (m.object is not null) = p_is_objects and (m.folder is not null or exists (select from exchange.move v where v.number = m.number))
$$;

-- Holds the lock of a server until the session ends: while it is held, the server runs.  Errors: MX001.
create or replace function exchange.hold(p_epoch bigint) returns void
language sql volatile set search_path from current as $$
  select exchange._enter(p_epoch);
  select pg_advisory_lock_shared(exchange._lock_class() + 2, p_epoch::integer)
$$;

-- Removes a server that has shut down.  A migration has ended when all that remain use one store.
create or replace function exchange.leave(p_epoch bigint) returns void
language sql volatile set search_path from current as $$
  delete from exchange.member m where m.epoch = p_epoch;
  update exchange.server s set is_migrating = exists (select from exchange.member m where m.second_root_id is not null)
  where s.is_migrating and exists (select from exchange.member)
$$;

-- Removes dead servers and returns the remaining ones.  p_silent: removes only servers that have not reported for this long, because a
-- server that lost its session soon has a new one.
create or replace function exchange.remove_dead(p_silent interval) returns setof exchange.member
language sql volatile set search_path from current as $$
  delete from exchange.member m
  where m.seen_at <= exchange.now() - p_silent and pg_try_advisory_xact_lock(exchange._lock_class() + 2, m.epoch::integer);
  select m.* from exchange.member m order by m.epoch
$$;

-- A server reports that it runs, and the time served is advanced.  Returns whether this server sweeps; it takes over when the lock of the
-- sweeping server is free or that server has not reported for a few seconds.  Two may sweep briefly, which is harmless.
--   p_now  the time, given by servers of older versions
create or replace function exchange.report_running(p_epoch bigint, p_now double precision default null) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  v_is_sweeper boolean;
  v_restored   exchange.database;
begin
  perform exchange._enter(p_epoch);
  update exchange.member m set seen_at = exchange.now() where m.epoch = p_epoch;
  update exchange.server s
  set served_seconds = greatest(exchange._served(s), p_now), seen_at = exchange.now(),
      sweeper = case when exists (select from exchange.member m
                                  where m.epoch = s.sweeper and m.seen_at > exchange.now() - interval '5 s')
                      and (s.sweeper = p_epoch or not pg_try_advisory_xact_lock(exchange._lock_class() + 2, s.sweeper::integer))
                     then s.sweeper else p_epoch end
  returning s.sweeper = p_epoch into v_is_sweeper;
  if v_is_sweeper then
    perform exchange.remove_dead('5 s');
    for v_restored in
      -- The reports of restores that have taken effect.
      update exchange.database d set is_restore_told = true
      where d.restored_at is not null and not d.is_restore_told and exchange.restored_in(d.id) = 0 returning d.*
    loop
      perform alerts.raise(
        'exchange/restored/' || v_restored.id, 'exchange', 'critical', format('database %s was restored from a backup', v_restored.id),
        format('Its last marker is %s, and %s was committed. What it lost is in Log: postroad exchange replay %s',
          v_restored.restored_seq, v_restored.committed_seq, v_restored.id));
    end loop;
  end if;
  return v_is_sweeper;
end $$;

-- Called by servers of older versions, which serve alone and therefore always sweep.
create or replace function exchange.tick(p_epoch bigint, p_now double precision) returns void
language sql volatile set search_path from current as $$ select exchange.report_running(p_epoch, p_now) $$;
