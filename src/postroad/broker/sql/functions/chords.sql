-- Records that a part of a chord has ended, and returns whether the body must be sent now: all parts have ended
-- and broker.end_chord was not called.  A worker that dies between the two calls leaves the body to the one that runs its last
-- part again.  size null: the value of the result <group_key>.s, which the publisher writes before it publishes the last part;
-- it is read under the lock, because the last part to end may have begun before.  Returns null when it is absent.
-- Locks: an advisory lock on the chord, to the end of the transaction.
create or replace function broker.end_chord_part(group_key text, task_id text, size integer, ttl interval default null)
returns boolean
language plpgsql security definer set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('broker.chord'), hashtext($1));
  insert into broker.chord_part (group_key, task_id, expires_at) values ($1, $2, mbus.now() + $4)
  on conflict on constraint part_is_unique_in_its_chord do nothing;
  return (select count(*) = coalesce(size, (
            select convert_from(r.value, 'UTF8')::integer from broker.result r where r.key = $1 || '.s'))
          from broker.chord_part c where c.group_key = $1);
end $$;

-- Records that the body was sent, by counting one part more than the chord has, so that no further part sends it.
create or replace function broker.end_chord(group_key text, ttl interval default null) returns void
language sql security definer set search_path from current as $$
  insert into broker.chord_part (group_key, task_id, expires_at) values ($1, '', mbus.now() + coalesce($2, '1 day'))
  on conflict on constraint part_is_unique_in_its_chord do nothing
$$;
