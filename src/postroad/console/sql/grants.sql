-- PUBLIC gets no permissions; the console uses those of the owner.
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in select p.oid from pg_proc p where p.pronamespace = 'console'::regnamespace loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
end $grants$;
