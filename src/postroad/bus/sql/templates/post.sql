-- Posts one message in the caller's transaction and returns its iid.
create or replace function mbus.post_{queue}(
  data {payload}, headers hstore default null, properties hstore default null,
  delayed_until timestamptz default null, expires timestamptz default null, iid text default null)
returns text
language plpgsql security definer set search_path from current as $function$
declare
  v_parcel   mbus.parcel;
  v_accepted record;
begin
  v_parcel.added := mbus.now();
  v_parcel.{data} := $1;
  v_parcel.properties := $3;
  if $2 is not null or $4 is not null or $5 is not null or $6 is not null then
    v_parcel.headers := $2;
    v_parcel.expires := $5;
    select * into v_accepted from mbus._accept({queue_id}, v_parcel, $4, $6);
    if v_accepted.parcel is null then    -- delayed, or a message with this key is there already
      return '{queue}.' || v_accepted.number || '@{node}';
    end if;
    v_parcel := v_accepted.parcel;
  end if;
  return '{queue}.' || mbus._put_{queue}(v_parcel) || '@{node}';
end $function$;
