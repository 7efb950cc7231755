-- Takes up to amt messages in the caller's transaction: commit consumes them, rollback or a lost
-- connection gives them back.
create or replace function mbus.consumen_{queue}_by_{consumer}(amt integer) returns setof mbus.{model}
language plpgsql security definer set search_path from current rows 100 as $function$
begin
  return query
  select {delivered}
  from mbus.batch_{queue}_by_{consumer}(amt) m;
end $function$;
