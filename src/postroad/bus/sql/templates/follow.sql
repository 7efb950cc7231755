-- Copies a message to all followers of the queue, in the producer's transaction.  An error in a selector does not fail the post: the copy
-- goes to the dmq with the error.
create or replace function mbus._follow_{queue}(p_parcel mbus.parcel, p_number bigint, p_delayed_until timestamptz) returns void
language plpgsql security definer set search_path from current as $function$
declare
  t         mbus.{model};
  v_headers hstore;
  v_is_hit  boolean;
  v_error   text;
begin
  t.id := p_number;
  t.iid := '{queue}.' || p_number || '@{node}';
  t.added := p_parcel.added;
  t.delayed_until := p_delayed_until;
  t.expires := p_parcel.expires;
  t.headers := mbus._deliver({constants}::hstore, p_parcel.added, p_parcel.headers, null);
  t.properties := p_parcel.properties;
  t.data := p_parcel.{data};
  v_headers := mbus._copy_headers(p_parcel, t.iid);
{triggers}
  if exists (select from mbus.follower f where f.queue_id = {queue_id} and f.temporary_name is not null) then
    if p_delayed_until is not null then
      p_parcel.trail := jsonb_build_object('delayed_until', p_delayed_until);
    end if;
    perform mbus._temporary_follow({queue_id}, t, p_parcel, v_headers);
  end if;
end $function$;
