-- Notifies consumers that wait for messages of a queue; to be called in the transaction that posts.
-- The notice is sent at the commit.  A consumer that begins to wait between this call and the commit gets no notice, and
-- finds the message by polling again a moment later.
create or replace function broker.wake(id integer) returns void
language plpgsql security definer set search_path from current as $$
begin
  if broker._is_awaited($1) then
    perform pg_notify('mbus', q.bus_name) from broker.queue q where q.id = $1;
  end if;
end $$;

-- Notifies this session of messages of the queue from now on.  Poll after it, and again a moment later.
create or replace function broker.await(id integer) returns void
language sql volatile security definer set search_path from current as $$
  select pg_advisory_lock_shared(broker._waiting_class(), $1)
$$;

-- Ends the notifications.
create or replace function broker.unawait(id integer) returns boolean
language sql volatile security definer set search_path from current as $$
  select pg_advisory_unlock_shared(broker._waiting_class(), $1)
$$;
