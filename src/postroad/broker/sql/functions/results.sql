-- Results of tasks.

-- Stores a value.  A success is never overwritten by a task that was considered lost and ends late.
create or replace function broker.store(key text, status text, value bytea, ttl interval default null) returns boolean
language sql security definer set search_path from current as $$
  insert into broker.result as r (key, status, value, expires_at) values ($1, $2, $3, mbus.now() + $4)
  on conflict on constraint result_pkey do update
    set status = excluded.status, value = excluded.value, expires_at = excluded.expires_at
    where r.status <> 'SUCCESS' or excluded.status = 'SUCCESS'
  returning true
$$;

-- Notifies clients that wait for results of this bucket.
create or replace function broker.announce(bucket integer, key text) returns void
language plpgsql security definer set search_path from current as $$
begin
  if not pg_try_advisory_lock(hashtext('broker.result'), bucket) then
    perform pg_notify('mbus_result', key);
  else
    perform pg_advisory_unlock(hashtext('broker.result'), bucket);
  end if;
end $$;

-- Notifies this session of results in these buckets from now on.
create or replace function broker.await_results(buckets integer[]) returns void
language sql volatile security definer set search_path from current as $$
  select pg_advisory_lock_shared(hashtext('broker.result'), b) from unnest($1) b
$$;

-- Returns the stored values that have not expired.
create or replace function broker.fetch(keys text[]) returns table (key text, value bytea)
language sql stable security definer set search_path from current as $$
  select r.key, r.value from broker.result r
  where r.key = any ($1) and (r.expires_at is null or r.expires_at > mbus.now())
$$;

-- Deletes values; unknown keys are ignored.
create or replace function broker.forget(keys text[]) returns void
language sql security definer set search_path from current as $$ delete from broker.result r where r.key = any ($1) $$;

-- Sets how long values are kept from now on; null: without limit.
create or replace function broker.expire(keys text[], ttl interval) returns void
language sql security definer set search_path from current as $$
  update broker.result r set expires_at = mbus.now() + $2 where r.key = any ($1)
$$;

-- Deletes up to amt expired values and as many expired parts of chords; returns the number of values.
create or replace function broker.clear_results(amt integer default 10000) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_count bigint;
begin
  delete from broker.result r where r.ctid = any (array(
    select w.ctid from broker.result w where w.expires_at <= (select mbus.now()) limit amt for update skip locked));
  get diagnostics v_count = row_count;
  delete from broker.chord_part c where c.ctid = any (array(
    select w.ctid from broker.chord_part w where w.expires_at <= (select mbus.now()) limit amt for update skip locked));
  return v_count;
end $$;
