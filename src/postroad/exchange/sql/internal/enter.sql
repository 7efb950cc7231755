-- Every call begins here.  A server whose generation has passed is refused, and a new one waits until running calls
-- have ended: they hold the lock shared.  p_epoch null: an administrator's command, which belongs to no generation.
-- Errors: MX001.
create or replace function exchange._enter(p_epoch bigint) returns exchange.server
language plpgsql volatile set search_path from current as $$
declare
  v_server exchange.server;
begin
  perform pg_advisory_xact_lock_shared(exchange._lock_class(), 0);
  select s.* into v_server from exchange.server s;
  if p_epoch is not null and p_epoch <> v_server.epoch then
    raise exception 'another server has taken over this exchange (generation %, this one is %)', v_server.epoch, p_epoch
      using errcode = 'MX001', hint = 'Stop this server; the other one serves.';
  end if;
  return v_server;
end $$;

-- The first key of the component's advisory locks.
create or replace function exchange._lock_class() returns integer
language sql immutable parallel safe as $$ select 1163412296 $$;
