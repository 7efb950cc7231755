-- API_4, API_5, API_6, resolve and release: how a process ends, reported by its owner, by another instance on its
-- database, or by an administrator.
--   p_call     commit, abort, fail, resolve or release; a client that is not the owner may resolve only a process in doubt
--   p_client   null: an administrator, who may end every process; p_actor: the name for the history
--   p_outcome  of resolve and release: COMMITTED, ABORTED; INFLIGHT and null: no outcome
-- Answers {status:  OK | MISSING | FORBIDDEN | CONFLICT | OUTCOME | CANCELLED, state, moves}.  A process that has already ended with the
-- same outcome:  OK.  A contradiction changes nothing and raises an alert.
-- Locks: the database's row for a commit, the process's row, then its messages.  Errors: MX001.
create or replace function exchange.end_process(
  p_epoch bigint, p_now double precision, p_call text, p_client text, p_process text, p_outcome text, p_error text,
  p_actor text default null)
returns jsonb
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_now     constant double precision := coalesce(p_now, v_server.served_seconds);
  v_process exchange.process;
  v_actor   constant text := coalesce(p_actor, p_client);
  v_wanted  constant text := case p_call when 'commit' then 'COMMITTED' when 'abort' then 'ABORTED'
                             when 'fail' then 'ABORTED' else p_outcome end;
begin
  if v_wanted = 'COMMITTED' then
    -- The last marker of the database may change; API_1, which also settles processes, locks its row before the process.
    perform from exchange.database d
    where d.id = (select p.database_id from exchange.process p where p.id = p_process) for no key update;
  end if;
  select p.* into v_process from exchange.process p where p.id = p_process for update;
  if v_process.id is null then return jsonb_build_object('status', 'MISSING'); end if;
  if p_call in ('commit', 'abort', 'fail') and v_process.client_id <> p_client then
    return jsonb_build_object('status', 'FORBIDDEN');
  end if;
  if p_call = 'resolve' and v_wanted in ('COMMITTED', 'ABORTED') and v_process.client_id <> p_client
     and v_process.state in ('STARTED', 'READY_TO_COMMIT') then
    return jsonb_build_object('status', 'FORBIDDEN');
  end if;
  if v_process.outcome is not null then
    if v_wanted in ('COMMITTED', 'ABORTED') and v_process.outcome <> v_wanted then
      perform exchange._alert_contradiction(v_process, v_wanted, coalesce(v_actor, 'an administrator'))
      where p_call in ('commit', 'resolve') and v_process.state not in ('CANCELLED');
      return jsonb_build_object('status', 'CONFLICT', 'state', v_process.state, 'outcome', v_process.outcome);
    end if;
  elsif v_process.state = 'STARTED' then
    case
      when p_call in ('abort', 'fail') then
        v_process := exchange._abort(v_process, v_now, 'ABORTED', v_actor, p_error, 'failure');
      when p_call = 'release' and v_wanted is distinct from 'COMMITTED' then
        v_process := exchange._abort(v_process, v_now, 'CANCELLED', v_actor, coalesce(p_error, 'released'), null);
      when p_call = 'resolve' and v_wanted = 'ABORTED' then
        v_process := exchange._abort(v_process, v_now, 'ABORTED', v_actor, coalesce(p_error, 'settled by the marker'), 'expiry');
      when p_call = 'resolve' and v_wanted = 'INFLIGHT' then null;
      else
        return jsonb_build_object('status', 'CONFLICT', 'state', v_process.state);
    end case;
  elsif v_wanted in ('COMMITTED', 'ABORTED') then
    if v_wanted = 'COMMITTED' then
      v_process := exchange._commit(v_process, v_now, v_actor, p_error);
    else
      v_process := exchange._abort(
        v_process, v_now, 'ABORTED', v_actor, coalesce(p_error, case p_call when 'resolve' then 'settled by the marker' end),
        case when p_call in ('abort', 'fail') then 'failure' when p_call = 'resolve' then 'expiry' end);
    end if;
  elsif p_call = 'release' then
    return jsonb_build_object('status', 'OUTCOME', 'state', v_process.state);
  end if;
  return jsonb_build_object(
    'status', 'OK', 'state', v_process.state, 'outcome', v_process.outcome, 'moves', exchange._moves(p_process));
end $$;
