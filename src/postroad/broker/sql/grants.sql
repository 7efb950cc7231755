-- The functions are for the owner and for mbus_<db>_admin: declaring a queue creates a queue of the bus.
do $grants$
declare
  v_admin    constant text := mbus._role('admin');
  v_function regprocedure;
begin
  if to_regrole(quote_ident(v_admin)) is null then return; end if;
  execute format('grant usage on schema broker to %I', v_admin);
  for v_function in
    select p.oid from pg_proc p where p.pronamespace = 'broker'::regnamespace and p.proname not like '\_%'
  loop
    execute format('grant execute on function %s to %I', v_function, v_admin);
  end loop;
end $grants$;
