-- Takes one consumer's copy of the message with this iid, wherever it waits.  Blocks while another
-- transaction holds it; returns nothing when it is not there.
create or replace function mbus.take_from_{queue}_by_{consumer}(iid text) returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 1 as $function$
begin
  return query
  select p.number, p.added, $1, (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver({constants}::hstore, p.added, p.headers, p.trail),
         p.properties, p.{data}
  from mbus._take_number({queue_id}, {consumer_id}, mbus._number('{queue}', $1)) p;
  if found then
    perform mbus._taken({queue_id}, {consumer_id}, mbus._number('{queue}', $1));
  end if;
end $function$;
