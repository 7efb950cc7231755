-- No function is executable by public: a bridge connects as the owner of the schema, or as a role with usage on the schema and
-- execute on its functions.
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p
    where p.pronamespace = 'bridge'::regnamespace
      and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
  loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
end $grants$;
