-- Maintains the bus and notifies the consumers of queues that got messages by it; returns the number of messages that came due or were
-- given back.  Any number of sessions may call it, each in a separate transaction: one of them at a time does the work, at most five
-- times a second in total.  Locks: an advisory lock to the end of the transaction, without waiting.
create or replace function broker.maintain() returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_now   constant bigint := extract(epoch from clock_timestamp()) * 1000;
  v_moved bigint;
begin
  if not pg_try_advisory_xact_lock(hashtext('broker.maintain'), 0)
     or pg_sequence_last_value('broker.maintained') between v_now - 199 and v_now then
    return 0;
  end if;
  with moved as (
    select m.queue, m.released + m.ended as amount from mbus.maintain() m where m.released + m.ended > 0)
  , notified as (
    -- Notifies without checking for waiting sessions: the messages are not visible to others before this commits.
    select pg_notify('mbus', coalesce(q.bus_name, m.queue))
    from moved m left join broker.queue q on m.queue in (q.bus_name, q.bus_name || substring(m.queue from '_[1-9]$')))
  select coalesce(sum(m.amount), 0) into v_moved from moved m where (select count(*) from notified) >= 0;
  -- Last, because it writes: mbus.maintain rotates and raises hints only in a transaction that has written nothing before.
  perform setval('broker.maintained', v_now);
  return v_moved;
end $$;

-- Deletes queues that were not used for the time of their x-expires, and temporary ones whose session has ended.
create or replace function broker.clear_queues() returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_name  text;
  v_count bigint := 0;
begin
  for v_name in
    select q.name from broker.queue q where q.expires_after is not null and not q.is_temporary
      and q.used_at < mbus.now() - q.expires_after and not broker._is_awaited(q.id)
    union all
    select q.name from broker.queue q where q.is_temporary and q.used_at < mbus.now() - coalesce(q.expires_after, '1 minute')
      and (mbus._temporary_queue(q.bus_name)).name is null
    limit 100
  loop
    perform broker.delete_queue(v_name);
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;
