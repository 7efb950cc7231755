-- The transitions that end a process.  Each function takes a process whose row the caller has locked, and returns the changed row.

-- Whether the file of a message that a process holds is in quarantine: the process is not affected, and the message keeps
-- its state, but it is not handed out again.
create or replace function exchange._is_bad(p_folder text) returns boolean
language sql immutable parallel safe as $$ select coalesce(p_folder, 'Error') = 'Error' $$;

-- The ERP has committed: processed messages are done, replies become visible, and moves of the files are planned.
create or replace function exchange._commit(
  p_process exchange.process, p_now double precision, p_actor text, p_note text default null)
returns exchange.process
language plpgsql volatile set search_path from current as $$
declare
  v_process exchange.process;
begin
  update exchange.process p set state = 'CLEANUP', outcome = 'COMMITTED', deadline = null, expires_at = null,
    traceparent = coalesce(nullif(current_setting('postroad.traceparent', true), ''), p.traceparent)
  where p.id = p_process.id returning p.* into v_process;
  if p_process.has_marker then
    update exchange.database d set committed_seq = greatest(d.committed_seq, p_process.marker_seq)
    where d.id = p_process.database_id;
  end if;
  update exchange.message m
  set state = case when f.result = 'PROCESSED' then 'done'
                   when f.result = 'DEFERRED' and not exchange._is_bad(m.folder) then 'deferred' else 'parked' end,
      folder = case when exchange._is_bad(m.folder) then m.folder
                    when f.result = 'DEFERRED' then 'Messages' when f.result = 'INCORRECT' then 'Error' else 'Log' end,
      available_at = case f.result when 'DEFERRED' then p_now + f.delay end,
      error = nullif(concat_ws('; ', f.error, case when exchange._is_bad(m.folder) then m.error end), ''),
      is_parked_by_file = f.result = 'DEFERRED' and exchange._is_bad(m.folder),
      finished_at = case when f.result = 'DEFERRED' then null else exchange.now() end
  from exchange.process_file f
  where f.process_id = p_process.id and not f.is_refused and m.number = f.number and m.process_id = p_process.id;
  update exchange.message m
  set state = case when exchange._is_bad(m.folder) then 'parked' else 'waiting' end, is_parked_by_file = exchange._is_bad(m.folder),
      folder = case when exchange._is_bad(m.folder) then m.folder else 'Messages' end
  where m.process_id = p_process.id and m.kind = 'reply' and m.state in ('prepared', 'unknown');
  perform exchange._alert_outcome(m) from exchange.message m
  where m.process_id = p_process.id and (m.state = 'parked' or m.state = 'done' and exchange._is_bad(m.folder));
  perform alerts.clear('exchange/in_doubt/' || p_process.id) where p_process.state = 'UNKNOWN';
  perform exchange._note(v_process, p_actor, p_note);
  return v_process;
end $$;

-- Nothing was committed: the files are handed out again, and prepared replies are discarded.
--   p_counts  how the end counts for its messages: as a failure, an expiry, or not at all (null)
-- A message that was handed out alone and has failed too often is parked with the reason.
create or replace function exchange._abort(
  p_process exchange.process, p_now double precision, p_state text, p_actor text, p_error text, p_counts text)
returns exchange.process
language plpgsql volatile set search_path from current as $$
declare
  v_process exchange.process;
  v_server  exchange.server;
  v_parked  exchange.message;
  v_alone   boolean;
begin
  select s.* into v_server from exchange.server s;
  update exchange.process p
  set state = p_state, outcome = 'ABORTED', deadline = null, expires_at = null, ended_at = exchange.now(),
      error = coalesce(p_error, p.error)
  where p.id = p_process.id returning p.* into v_process;
  select count(*) = 1 into v_alone from exchange.process_file f where f.process_id = p_process.id and not f.is_refused;
  update exchange.message m
  set state = case when exchange._is_bad(m.folder) then 'parked' else 'queued' end,
      folder = case when exchange._is_bad(m.folder) then m.folder else 'Messages' end,
      error = case when exchange._is_bad(m.folder) then m.error else coalesce(p_error, m.error) end,
      is_parked_by_file = exchange._is_bad(m.folder),
      failures = m.failures + (p_counts is not distinct from 'failure')::integer,
      expiries = m.expiries + (p_counts is not distinct from 'expiry')::integer
  from exchange.process_file f
  where f.process_id = p_process.id and not f.is_refused and m.number = f.number and m.process_id = p_process.id
    and m.state in ('leased', 'unknown');
  perform exchange._alert_outcome(m) from exchange.message m
  where m.process_id = p_process.id and m.kind = 'message' and m.state = 'parked' and m.is_parked_by_file;
  perform alerts.clear(format('exchange/corrupt/%s', m.number)) from exchange.message m
  where m.process_id = p_process.id and m.kind = 'reply' and m.state in ('prepared', 'unknown') and exchange._is_bad(m.folder);
  update exchange.message m set state = 'discarded', folder = null, finished_at = exchange.now()
  where m.process_id = p_process.id and m.kind = 'reply' and m.state in ('uploaded', 'prepared', 'unknown');
  if v_alone and p_counts is not null then
    update exchange.message m
    set state = 'parked', folder = 'Error', finished_at = exchange.now(),
        error = coalesce(p_error, m.error, 'it was not finished in time, again and again')
    from exchange.process_file f
    where f.process_id = p_process.id and not f.is_refused and m.number = f.number and m.state = 'queued'
      and (m.failures > v_server.suspect_after or m.expiries > 3 * v_server.suspect_after)
    returning m.* into v_parked;
    perform exchange._alert_parked(v_parked) where v_parked.number is not null;
  end if;
  perform alerts.clear('exchange/in_doubt/' || p_process.id) where p_process.state = 'UNKNOWN';
  perform exchange._note(v_process, p_actor, p_error);
  return v_process;
end $$;

-- The outcome has decided about a message or a reply, so an earlier alert about its file is replaced.  A message that is done needs no
-- action; a parked one needs an administrator, because of its result or its file.
create or replace function exchange._alert_outcome(p_message exchange.message) returns void
language plpgsql volatile set search_path from current as $$
begin
  if p_message.state = 'done' then
    perform alerts.clear(format('exchange/corrupt/%s', p_message.number));
  elsif p_message.is_parked_by_file then
    perform exchange._alert_corrupt(p_message, p_message.folder is not null);
  else
    perform alerts.clear(format('exchange/corrupt/%s', p_message.number)) where exchange._is_bad(p_message.folder);
    perform exchange._alert_parked(p_message);
  end if;
end $$;

-- Raises an alert and posts an event for the sender, because a message is parked in Error.
create or replace function exchange._alert_parked(p_message exchange.message) returns void
language plpgsql volatile set search_path from current as $$
begin
  perform alerts.raise(
    format('exchange/parked/%s', p_message.number), 'exchange', 'error',
    format('message %s of %s to database %s is parked in Error', p_message.id, p_message.sender, p_message.database_id),
    format('%s. When the reason is gone: postroad exchange requeue %s --sender %s',
      coalesce(p_message.error, 'no reason was given'), p_message.id, p_message.sender));
  perform mbus.post_exchange_events(
    jsonb_build_object('message', p_message.id, 'sender', p_message.sender, 'database', p_message.database_id, 'kind', p_message.kind,
                       'state', p_message.state, 'error', p_message.error, 'at', exchange.now()),
    mbus.trace_headers(p_message.traceparent), null, null, exchange.now() + (select s.events_kept from exchange.server s));
end $$;
