-- breaks older: yes
-- Older clients call take_from_<queue>_by_<consumer> with the parameter iid, which is now msgid.
-- Replaced by functions with other parameters; those of queues are generated after the migration.
drop function if exists mbus.redrive(text, text, text);
do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from mbus.consumer c join mbus.queue q on q.id = c.queue_id
    join pg_proc p on p.pronamespace = 'mbus'::regnamespace and p.proname = 'take_from_' || q.name || '_by_' || c.name
  loop
    execute format('drop function %s', v_function);
  end loop;
end $$;
