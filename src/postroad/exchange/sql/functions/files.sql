-- API_2: the files that the ERP will process; the others are deferred with the reason.  A refusal counts like an expiry:
-- a message that is refused repeatedly is offered alone, and then parked.
-- Answers {status: OK | CANCELLED | CONFLICT | NAMES | FORBIDDEN}.
-- Locks: the process's row.  Errors: MX001.
create or replace function exchange.choose_files(
  p_epoch bigint, p_now double precision, p_client text, p_process text, p_files text[], p_reason text, p_delay double precision)
returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_process exchange.process;
  v_kept    text[];
  v_all     text[];
  v_parked  exchange.message;
begin
  select p.* into v_process from exchange.process p where p.id = p_process for update;
  if v_process.id is null then return jsonb_build_object('status', 'CANCELLED'); end if;
  if v_process.client_id <> p_client then return jsonb_build_object('status', 'FORBIDDEN'); end if;
  if v_process.outcome = 'ABORTED' then return jsonb_build_object('status', 'CANCELLED', 'state', v_process.state); end if;
  select coalesce(array_agg(m.file_name) filter (where not f.is_refused), '{}'), coalesce(array_agg(m.file_name), '{}')
  into v_kept, v_all
  from exchange.process_file f join exchange.message m on m.number = f.number where f.process_id = p_process;
  if not p_files <@ v_all then return jsonb_build_object('status', 'NAMES'); end if;
  if not (p_files <@ v_kept) or v_process.state <> 'STARTED' and not (v_kept <@ p_files) then
    return jsonb_build_object('status', 'CONFLICT', 'state', v_process.state);
  end if;
  if v_process.state = 'STARTED' then
    update exchange.process_file f set is_refused = true, error = p_reason
    from exchange.message m
    where f.process_id = p_process and not f.is_refused and m.number = f.number and m.file_name <> all (p_files);
    update exchange.message m
    set state = 'deferred', available_at = coalesce(p_now, v_server.served_seconds) + coalesce(p_delay, v_server.defer_delay),
        error = coalesce(p_reason, 'refused by ' || p_client), process_id = null, expiries = m.expiries + 1
    from exchange.process_file f
    where f.process_id = p_process and f.is_refused and m.number = f.number and m.process_id = p_process;
    -- A message that was offered alone and refused too often.
    update exchange.message m set state = 'parked', folder = 'Error', available_at = null, finished_at = exchange.now()
    from exchange.process_file f
    where f.process_id = p_process and f.is_refused and m.number = f.number and cardinality(v_all) = 1 and cardinality(v_kept) = 1
      and m.state = 'deferred' and m.expiries > 3 * v_server.suspect_after
    returning m.* into v_parked;
    perform exchange._alert_parked(v_parked) where v_parked.number is not null;
  end if;
  return jsonb_build_object('status', 'OK', 'state', v_process.state, 'moves', coalesce(
    (select jsonb_agg(exchange._move(m, v)) from exchange.process_file f join exchange.message m on m.number = f.number
     join exchange.move v on v.number = m.number where f.process_id = p_process and f.is_refused), '[]'));
end $$;
