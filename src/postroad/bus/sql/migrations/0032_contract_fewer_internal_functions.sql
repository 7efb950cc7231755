-- breaks older: no
-- Internal functions that became part of others, or got other parameters; those that exist still are created after the migration.
do $$
declare
  v_functions constant text := (
    select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p
    where p.pronamespace = 'mbus'::regnamespace and p.proname = any (
      '{_await_again,_check_admin,_check_circle,_check_contract,_check_delay,_check_not_taken_here,_choices,_clear_temporary,_compact_tempq,
        _constants,_drop_tables,_drop_triggers_to,_expire_aside,_has_elder,_is_claimed,_leads_to,_lock_aside,_own_temporary_queue,_read_bytea,
        _read_hstore,_read_jsonb,_read_messages,_read_text,_recreate_queue,_register_session,_revoke_user,_saga_after,_saga_apply,_saga_block,_saga_closing,
        _saga_complete,_saga_lost,_saga_target,_set_schema,_start_cursor,_sweep_tempq,_taken_under,_temporary_take,_trigger_parts}'));
begin
  if v_functions is not null then execute 'drop function ' || v_functions; end if;
end $$;
