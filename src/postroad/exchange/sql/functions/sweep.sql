-- Ends a process that has timed out:  STARTED is cancelled, READY_TO_COMMIT is in doubt.  One process per call, so that only one row is
-- locked; returns its id, or null when nothing is due.
--   p_is_restart  at the start of the first server: every READY_TO_COMMIT from before its start is in doubt, whatever its deadline
create or replace function exchange.sweep(p_epoch bigint, p_now double precision, p_is_restart boolean) returns text
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_now     constant double precision := coalesce(p_now, v_server.served_seconds);
  v_process exchange.process;
  v_level   text;
begin
  select p.* into v_process from exchange.process p
  where p.state in ('STARTED', 'READY_TO_COMMIT')
    and (p.deadline <= v_now
         or p_is_restart and p.state = 'READY_TO_COMMIT'
            -- Later processes belong to servers that started at the same time.
            and p.ready_at < (select m.started_at from exchange.member m where m.epoch = p_epoch))
  order by p.number limit 1 for update skip locked;
  if v_process.id is null then return null; end if;
  if v_process.state = 'STARTED' then
    perform exchange._abort(v_process, v_now, 'CANCELLED', null, 'timed out', 'expiry');
  else
    -- The outcome is unknown: the files go to Unknown and an alert is raised.
    update exchange.process p
    set state = 'UNKNOWN', deadline = null, expires_at = null,
        error = case when p_is_restart then 'the server was restarted' else 'timed out' end
    where p.id = v_process.id returning p.* into v_process;
    update exchange.message m
    set state = 'unknown', folder = case when exchange._is_bad(m.folder) then m.folder else 'Unknown' end
    where m.process_id = v_process.id and m.state in ('leased', 'prepared');
    select d.resolution into v_level from exchange.database d where d.id = v_process.database_id;
    perform alerts.raise(
      'exchange/in_doubt/' || v_process.id, 'exchange', case v_level when 'marker' then 'warning' else 'critical' end,
      format('process %s of database %s is in doubt', v_process.id, v_process.database_id),
      format('It was ready to commit and no instance reported the outcome: %s. Its files are in the folder Unknown. %s',
        v_process.error,
        case v_level when 'marker' then 'The next instance on that database settles it.'
        else format('Check the database, then: postroad exchange resolve %s COMMITTED (or ABORTED)', v_process.id) end));
    perform exchange._note(v_process, null, v_process.error);
  end if;
  return v_process.id;
end $$;
