-- Takes up to amt messages in the caller's transaction: commit consumes them, rollback or a lost
-- connection gives them back at once.
create or replace function mbus.consumen_{queue}_by_{consumer}(amt integer) returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 100 as $function$
begin
  return query
  select p.number, p.added, '{queue}.' || p.number || '@{node}', (p.trail ->> 'delayed_until')::timestamptz,
         p.expires, null::integer[], mbus._deliver({constants}::hstore, p.added, p.headers, p.trail),
         p.properties, p.{data}
  from mbus._take_{queue}_by_{consumer}($1) p;
end $function$;
