-- A session that waits for messages of a queue holds a shared advisory lock on its number.  Such a flag needs no write,
-- and the server releases it however the session ends.
create or replace function broker._waiting_class() returns integer
language sql immutable parallel safe set search_path from current as $$ select hashtext('broker.waiting') $$;

create or replace function broker._is_awaited(p_id integer) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  if pg_try_advisory_lock(broker._waiting_class(), p_id) then
    perform pg_advisory_unlock(broker._waiting_class(), p_id);
    return false;
  end if;
  return true;
end $$;
