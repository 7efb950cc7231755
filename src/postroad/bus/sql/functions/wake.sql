-- Notifies listeners on channel mbus; the payload is the name of the queue.  Call it outside the producer's transaction and not for each
-- message, because commits that notify wait for a global lock of the server.
create or replace function mbus.notify(qnames text[]) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform pg_notify('mbus', name)
  from (select distinct q.name from mbus.queue q where q.name = any (qnames)
        union select t.name from mbus.temporary_queue t where t.name = any (qnames)) woken;
end $$;

-- Returns the last id issued per queue, null for a queue that is unknown or that the caller has no permission for.  A cheap check
-- for new messages.
create or replace function mbus.positions(qnames text[]) returns bigint[]
language sql volatile security definer set search_path from current as $$
  select array_agg(case when mbus._may_use(q.name) then pg_sequence_last_value(q.position) end order by n.place)
  from unnest(qnames) with ordinality n(name, place) left join mbus.queue q on q.name = n.name
$$;
