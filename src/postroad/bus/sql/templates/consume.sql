-- Takes one message in the caller's transaction, or nothing.
create or replace function mbus.consume_{queue}_by_{consumer}() returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 1 as $function$
begin
  return query
  select {delivered}
  from mbus.batch_{queue}_by_{consumer}(1) m;
end $function$;
