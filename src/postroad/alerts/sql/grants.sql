-- Nothing is granted to PUBLIC.  A component that runs as another user than the owner needs only
--   grant usage on schema alerts to …;  grant execute on function alerts.raise, alerts.clear to …;
do $grants$
declare
  v_function regprocedure;
begin
  for v_function in select p.oid from pg_proc p where p.pronamespace = 'alerts'::regnamespace loop
    execute format('revoke execute on function %s from public', v_function);
  end loop;
end $grants$;
