-- Takes up to 100 messages of consumer default and runs a statement with each, as $1 of type mbus.{model}.
-- Each runs in a subtransaction: an error undoes the work for that message and moves it to the dmq with the error; the others continue.
-- Returns the number of successful runs.  All in the caller's transaction, and with the caller's rights and search
-- path: hence neither security definer nor a pinned search path.
create or replace function mbus.run_on_{queue}(exec text) returns integer
language plpgsql as $function$
declare
  v_iid     text;
  v_message mbus.{model};
  v_error   text;
  v_count   integer := 0;
begin
  perform mbus._check_statement(exec, '{model}');
  -- The messages are locked here, outside the subtransactions, so that a message whose subtransaction is undone is still locked.
  foreach v_iid in array mbus._claim_ready('{queue}', 'default', 100) loop
    v_error := null;
    begin
      select * into v_message from mbus.take_from_{queue}_by_default(v_iid);
      continue when not found;    -- it has expired since
      execute exec using v_message;
      v_count := v_count + 1;
    exception when others or assert_failure then
      v_error := sqlerrm;
    end;
    if v_error is not null then
      perform mbus.reject('{queue}', 'default', v_iid, null, v_error, true);
    end if;
  end loop;
  return v_count;
end $function$;
