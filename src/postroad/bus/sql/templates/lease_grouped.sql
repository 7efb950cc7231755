-- As lease, for clients that handle many messages: headers is null if it would only contain the constants and enqueue_time, which is the
-- column added as text.
create or replace function mbus.leasen_{queue}_by_{consumer}(amt integer, ttl interval)
returns table ({columns_delivered}, {columns_leased})
language plpgsql security definer set search_path from current rows 100 as $function$
declare
  v_until constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
begin
  return query
  with held as (
    insert into mbus.leased as h
      (queue_id, consumer_id, group_name, leased_until, number, added, expires, headers, properties, trail, {data})
    select {queue_id}, {consumer_id}, p.headers -> 'group', v_until, p.number, p.added, p.expires, p.headers,
           p.properties, mbus._tried(p.trail), p.{data}
    from mbus._take_{queue}_by_{consumer}($1) p{when_running}
    returning h.*)
  select h.number, h.added, '{queue}.' || h.number || '@{node}', (h.trail ->> 'delayed_until')::timestamptz,
         h.expires, null::integer[], mbus._deliver({constants}::hstore, h.added, h.headers,
           h.trail || jsonb_build_object('attempts', mbus._attempts(h.trail) - 1)),
         h.properties, h.{data}, {constants}::text, h.token, (h.trail ->> 'attempts')::integer, h.leased_until
  from held h order by h.token;
end $function$;
