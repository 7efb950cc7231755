-- Takes up to amt messages for the time ttl.  The lease is made in the caller's transaction; after its commit the holder has the message
-- until it acks or nacks it, or the lease ends.
create or replace function mbus.lease_{queue}_by_{consumer}(amt integer default 1, ttl interval default '30 seconds') returns setof mbus.{lease_model}
language plpgsql security definer set search_path from current rows 100 as $function$
begin
  return query
  select {delivered}, m.token, m.attempt, m.leased_until
  from mbus.leasen_{queue}_by_{consumer}(amt, ttl) m;
end $function$;
