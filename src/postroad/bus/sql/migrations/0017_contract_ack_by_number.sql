-- breaks older: no
-- Replaced by ackn_<q>_by_<c>, and by functions with other results.
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p where p.pronamespace = 'mbus'::regnamespace and p.proname ~ '^_ack_.*_by_'
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;
drop function if exists mbus._check_holders(text[], bigint[]), mbus._claims(text[], bigint[]);
