-- No function is executable by public: the intake runs as the owner of the schema.
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in select p.oid from pg_proc p where p.pronamespace = 'intake'::regnamespace loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
end $grants$;
