-- Wakes those who wait for messages of a queue, if there are any.  To be called after the message is committed,
-- in another transaction: who began to wait meanwhile has seen the message by then.
create or replace function broker.wake(ids integer[]) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_id integer;
begin
  foreach v_id in array ids loop
    if broker._is_awaited(v_id) then
      perform pg_notify('mbus', q.bus_name) from broker.queue q where q.id = v_id;
    end if;
  end loop;
end $$;

-- From now on this session is woken for messages of the queue.  Look once more after it.
create or replace function broker.await(id integer) returns void
language sql volatile security definer set search_path from current as $$
  select pg_advisory_lock_shared(broker._waiting_class(), $1)
$$;

-- And from now on not.
create or replace function broker.unawait(id integer) returns boolean
language sql volatile security definer set search_path from current as $$
  select pg_advisory_unlock_shared(broker._waiting_class(), $1)
$$;
