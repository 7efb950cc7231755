-- breaks older: no
alter table coordination.payload add column count integer;
alter table coordination.payload alter column after set storage external, alter column before set storage external;
alter sequence coordination.payload_id increment by 1000;
create type coordination.page as (rows jsonb, afters text[], befores text[]);
-- Older Readers call the new functions without the parameters that were added.
drop function if exists coordination.pull(bigint, integer, integer);
drop function if exists coordination.stage(jsonb);
drop function if exists coordination._apply_page(jsonb, coordination.progress);
drop function if exists coordination._stage_page(jsonb, coordination.progress);
drop function if exists coordination._apply(jsonb, bigint[], jsonb);
drop function if exists coordination._apply_together(jsonb, bigint[], jsonb, text[]);
drop function if exists coordination._apply_in_order(jsonb, bigint[]);
drop function if exists coordination._changes(jsonb, bigint[]);
-- The functions that apply payloads are made again with the next page.
do $generated$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p join coordination.entity e on p.proname in ('erase_' || e.name, 'write_' || e.name)
    where p.pronamespace = 'coordination'::regnamespace and e.role = 'replica'
  loop
    execute format('drop function %s', v_function);
  end loop;
end $generated$;
