-- Extends the lease of a process.  Answers {status: OK | MISSING | FORBIDDEN | CANCELLED, expires_at}.
create or replace function exchange.renew_process(p_epoch bigint, p_now double precision, p_client text, p_process text)
returns jsonb
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_process exchange.process;
  v_seconds double precision;
begin
  select p.* into v_process from exchange.process p where p.id = p_process for update;
  if v_process.id is null then return jsonb_build_object('status', 'MISSING'); end if;
  if v_process.client_id <> p_client then return jsonb_build_object('status', 'FORBIDDEN'); end if;
  if v_process.state not in ('STARTED', 'READY_TO_COMMIT') then
    return jsonb_build_object('status', 'CANCELLED', 'state', v_process.state);
  end if;
  v_seconds := case v_process.state when 'STARTED' then v_server.started_timeout else v_server.ready_timeout end;
  update exchange.process p
  set deadline = coalesce(p_now, v_server.served_seconds) + v_seconds, expires_at = exchange.now() + make_interval(secs => v_seconds)
  where p.id = p_process returning p.* into v_process;
  return jsonb_build_object('status', 'OK', 'state', v_process.state, 'expires_at', v_process.expires_at);
end $$;

-- Ends a process whose files are corrupt or cannot be read now; its attempt can be used for the next one.
create or replace function exchange.end_empty(p_epoch bigint, p_now double precision, p_process text) returns void
language plpgsql volatile set search_path from current as $$
declare
  v_server  constant exchange.server := exchange._enter(p_epoch);
  v_process exchange.process;
begin
  select p.* into v_process from exchange.process p where p.id = p_process and p.state = 'STARTED' for update;
  if v_process.id is null then return; end if;
  perform exchange._abort(v_process, coalesce(p_now, v_server.served_seconds), 'CANCELLED', null, 'its files could not be read', null);
  update exchange.process p set attempt = p.attempt || ' (empty ' || p.id || ')' where p.id = p_process;
end $$;
