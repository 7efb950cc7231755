-- PUBLIC gets no permissions.  A user who changes a tracked table needs none here: the triggers run as their owner.
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p where p.pronamespace = 'coordination'::regnamespace
  loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
end $grants$;
