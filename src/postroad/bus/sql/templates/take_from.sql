-- Takes one consumer's copy of the message with this iid, wherever it waits.  Blocks while another
-- transaction holds it; returns nothing if it does not exist.
create or replace function mbus.take_from_{queue}_by_{consumer}(msgid text) returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 1 as $function$
declare
  v_number constant bigint := mbus._number('{queue}', $1);
  v_copies constant mbus.parcel[] := array(select p from mbus._take_number({queue_id}, {consumer_id}, v_number) p{when_running});
begin
  if v_copies = '{}' then return; end if;
  perform mbus._note_taken(v_copies);
  perform mbus._tally({consumer_id}, 'consumed', 1);
  perform mbus._taken({queue_id}, {consumer_id}, v_number);
  return query
  select p.number, p.added, $1, (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver({constants}::hstore, p.added, p.headers, p.trail),
         p.properties, p.{data}
  from unnest(v_copies) p;
end $function$;
