-- Notes that a part of a chord has ended, and answers whether the body is to be sent now: all parts have ended
-- and nobody has said broker.end_chord.  A part that runs twice counts once; a worker that dies between the two
-- calls leaves the body to the one that does its last part again.
-- Locks: an advisory lock on the chord, to the end of the transaction.
create or replace function broker.end_chord_part(group_key text, task_id text, size integer, ttl interval default null)
returns boolean
language plpgsql security definer set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('broker.chord'), hashtext($1));
  insert into broker.chord_part (group_key, task_id, expires_at) values ($1, $2, mbus.now() + $4)
  on conflict on constraint part_is_unique_in_its_chord do nothing;
  return (select count(*) = size from broker.chord_part c where c.group_key = $1);
end $$;

-- The body is sent: one part too many, so that no part asks for it again.
create or replace function broker.end_chord(group_key text, ttl interval default null) returns void
language sql security definer set search_path from current as $$
  insert into broker.chord_part (group_key, task_id, expires_at) values ($1, '', mbus.now() + coalesce($2, '1 day'))
  on conflict on constraint part_is_unique_in_its_chord do nothing
$$;
