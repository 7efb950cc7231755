-- For the owner, and for mbus_<db>_admin: who declares queues makes queues of the bus.
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in select p.oid from pg_proc p where p.pronamespace = 'broker'::regnamespace loop
    execute format('revoke execute on function %s from public', v_function);
    if exists (select from pg_roles where rolname = mbus._role('admin'))
       and (select p.proname not like '\_%' from pg_proc p where p.oid = v_function) then
      execute format('grant usage on schema broker to %I', mbus._role('admin'));
      execute format('grant execute on function %s to %I', v_function, mbus._role('admin'));
    end if;
  end loop;
end $grants$;
