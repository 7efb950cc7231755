-- Posts one message in the caller's transaction and returns its iid.
create or replace function mbus.post_{queue}(
  data {payload}, headers hstore default null, properties hstore default null,
  delayed_until timestamptz default null, expires timestamptz default null, iid text default null) returns text
language plpgsql security definer set search_path from current as $function$
declare
  v_parcel     mbus.parcel;
  v_accepted   record;
  v_generation bigint;
  v_id         bigint;
begin
{conform}  if $2 is null and $4 is null and $5 is null and $6 is null then
{plain}
  end if;
  v_parcel := row(null, mbus.now(), $5, $2, $3, null, null, {parameters})::mbus.parcel;
  select * into v_accepted from mbus._accept({queue_id}, v_parcel, $4, $6);
{put}
end $function$;
