-- Removes up to amt unread messages of one consumer in a state (or the one with the iid) and returns their number; call it again until it
-- returns 0.  Messages that wait for a purged one treat it as lost: it was removed without being handled.
-- Locks: the rows; waits for rows that another transaction holds.
-- Errors: MB001, MB002, MB012 state or step of a saga, MB014 isolation.
create or replace function mbus.purge(
  qname text, cname text default 'default', state text default 'ready', amt integer default 1000,
  iid text default null) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_number   bigint;
  v_found    bigint;
  v_count    bigint := 0;
begin
  perform mbus._check_amount(amt);
  if purge.state = 'retained' then perform mbus._browse_aside(purge.state, null, null); end if;    -- raises
  if purge.iid is null and purge.state = 'ready' and not v_queue.has_waiters and not v_queue.has_groups then
    execute format('select count(*) from mbus.%I($1)', '_take_' || qname || '_by_' || cname) into v_count using amt;
    return v_count;
  end if;
  for v_number in
    select mbus._number(qname, purge.iid) where purge.iid is not null
    union all
    select mbus._number(qname, b.iid) from mbus.browse(qname, cname, purge.state, amt => purge.amt) b
    where purge.iid is null and b.is_match
  loop
    perform mbus._check_no_step(v_queue, v_number);
    select count(*) into v_found from mbus._take_number(v_queue.id, v_consumer.id, v_number);
    if v_found > 0 and v_queue.has_waiters then
      perform mbus._lost(v_queue.id, v_consumer.id, array[v_number]);
    end if;
    v_count := v_count + v_found;
  end loop;
  return v_count;
end $$;
