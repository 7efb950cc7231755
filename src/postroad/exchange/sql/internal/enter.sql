-- Every call begins here.  The calls of a removed server are refused, and a server is removed only while none of its calls runs: they hold
-- its lock shared.  p_epoch null: an administrator's command, which belongs to no server.  served_seconds is computed for this moment.
-- Errors: MX001.
create or replace function exchange._enter(p_epoch bigint) returns exchange.server
language plpgsql volatile set search_path from current as $$
declare
  v_server exchange.server;
begin
  perform pg_advisory_xact_lock_shared(exchange._lock_class() + 2, p_epoch::integer);
  select s.* into v_server from exchange.server s;
  if p_epoch is not null and not exists (select from exchange.member m where m.epoch = p_epoch) then
    raise exception 'this server (generation %) was removed: it did not respond', p_epoch
      using errcode = 'MX001', hint = 'Start it again; other servers of this exchange continue.';
  end if;
  v_server.served_seconds := exchange._served(v_server);
  return v_server;
end $$;

-- The time served until now: the seconds during which a server ran.  Timeouts are counted in them.  Each step is limited, so that neither a
-- clock change nor a pause of all servers lets timeouts expire.
create or replace function exchange._served(p_server exchange.server) returns double precision
language sql volatile parallel safe as $$
  select p_server.served_seconds + least(greatest(extract(epoch from exchange.now() - p_server.seen_at), 0), 5)::double precision
$$;

-- The first key of the component's advisory locks.
create or replace function exchange._lock_class() returns integer
language sql immutable parallel safe as $$ select 1163412296 $$;
