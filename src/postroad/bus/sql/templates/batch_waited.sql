-- As consumen, for clients that handle many messages: headers is null if it would only contain the constants and enqueue_time, which is the
-- column added as text.  Messages that wait for these are released with them.
create or replace function mbus.batch_{queue}_by_{consumer}(amt integer) returns table ({columns_delivered})
language plpgsql security definer set search_path from current rows 100 as $function$
declare
  v_taken constant mbus.parcel[] := array(select p from mbus._take_{queue}_by_{consumer}($1) p{when_running});
begin
  perform mbus._note_taken(v_taken, {consumer_id});
  perform mbus._tally({consumer_id}, 'consumed', cardinality(v_taken));
  perform mbus._done({queue_id}, {consumer_id}, array(select t.number from unnest(v_taken) t));
  return query
  select {output}
  from (select t.number as id, null::bigint as origin, t.added, t.expires, t.headers, t.properties, t.trail,
               t.{data} as data, t.place
        from unnest(v_taken) with ordinality
          t(number, added, expires, headers, properties, trail, recipients,
            data_hstore, data_jsonb, data_text, data_bytea, place)) g
  order by g.place;
end $function$;
