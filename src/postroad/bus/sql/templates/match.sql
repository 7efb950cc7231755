-- The consumers that get a message.  An error in a selector does not fail the post: the copy of that consumer goes to the dmq with the
-- error.
create or replace function mbus._match_{queue}(p_parcel mbus.parcel, p_number bigint) returns integer[]
language plpgsql security definer set search_path from current as $function$
declare
  v_recipients integer[] := {everybody};
  t mbus.{model};
begin
  t.id := p_number;
  t.iid := '{queue}.' || p_number || '@{node}';
  t.added := p_parcel.added;
  t.delayed_until := (p_parcel.trail ->> 'delayed_until')::timestamptz;
  t.expires := p_parcel.expires;
  t.headers := {headers};
  t.properties := p_parcel.properties;
  t.data := p_parcel.{data};
{choices}
  return v_recipients;
end $function$;
