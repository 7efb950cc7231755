-- Takes the message with this iid from all consumers and returns it once.  Blocks while another
-- transaction holds it; returns nothing when it is not there.
create or replace function mbus.take_{queue}(iid text) returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 1 as $function$
begin
  return query
  select p.number, p.added, $1, (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver({constants}::hstore, p.added, p.headers, p.trail),
         p.properties, p.{data}
  from mbus._take_number({queue_id}, null, mbus._number('{queue}', $1)) p
  limit 1;
  if found then
    perform mbus._taken({queue_id}, null, mbus._number('{queue}', $1));
  else
    perform mbus._saga_missed({queue_id}, mbus._number('{queue}', $1));
  end if;
end $function$;
