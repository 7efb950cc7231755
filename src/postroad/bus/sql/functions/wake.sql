-- Wakes listeners on channel mbus; the payload is the queue's name.  To be called outside the producer's
-- transaction and not for each message: commits that notify queue up behind one lock of the server.
create or replace function mbus.notify(qnames text[]) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform pg_notify('mbus', name)
  from (select distinct q.name from mbus.queue q where q.name = any (qnames)
        union select t.name from mbus.temporary_queue t where t.name = any (qnames)) woken;
end $$;

-- The last id drawn per queue, null for an unknown one: a probe for "anything new?" that costs nothing.
create or replace function mbus.positions(qnames text[]) returns bigint[]
language sql volatile security definer set search_path from current as $$
  select array_agg(pg_sequence_last_value(q.position) order by n.place)
  from unnest(qnames) with ordinality n(name, place) left join mbus.queue q on q.name = n.name
$$;
