-- API_1: starts a process, or returns why not.  Answers, in this order of precedence:
--   STARTED   the attempt already has a process (in any state), or a new one is started
--   RESTORED  the ERP's highest marker is older than the last commit recorded here: its database was restored from a backup, or the caller
--             read the marker before another instance's commit, and has to read it and call again
--   RESOLVE   at level marker: processes in doubt must be settled first; `p_resolved` settles in the same call
--   BUSY      the database or the recipient has a process
--   IDLE      there is nothing to hand out
-- `settled` lists processes whose files are to be moved now.
-- Locks: the database's row, then the recipient (advisory), then processes.  Errors: MX001, MX030 contradiction.
create or replace function exchange.start_process(
  p_epoch bigint, p_now double precision, p_client text, p_database text, p_recipient text, p_attempt text,
  p_max_files integer, p_max_bytes bigint, p_senders text[], p_resolved jsonb, p_marker_seq bigint)
returns jsonb
language plpgsql volatile set search_path from current set plan_cache_mode to force_generic_plan as $$
declare
  v_server   constant exchange.server := exchange._enter(p_epoch);
  v_now      constant double precision := coalesce(p_now, v_server.served_seconds);
  v_database exchange.database;
  v_process  exchange.process;
  v_settled  text[] := '{}';
  v_open     text[];
  v_picked   bigint[];
  v_wait     double precision;
begin
  select p.* into v_process from exchange.process p where p.client_id = p_client and p.attempt = p_attempt;
  if v_process.id is not null then
    if v_process.database_id <> p_database or v_process.recipient <> p_recipient then
      perform exchange._refuse_attempt();
    end if;
    return jsonb_build_object('status', 'STARTED', 'process', exchange._shown(v_process));
  end if;
  select d.* into v_database from exchange.database d where d.id = p_database for update;
  if v_database.id is null then
    return jsonb_build_object('status', 'IDLE', 'settled', '[]'::jsonb, 'is_unknown', true);
  end if;
  v_settled := exchange._take_answers(p_database, p_resolved, v_now, p_client);
  if p_marker_seq is not null and p_marker_seq < v_database.committed_seq then
    -- Or the caller read its marker before another instance's commit and called after it.  Only reading again shows the difference, so the
    -- report takes effect only after a delay in which no newer marker was reported.
    update exchange.database d
    set restored_seq = least(d.restored_seq, p_marker_seq), restored_at = coalesce(d.restored_at, exchange.now())
    where d.id = p_database;
    return jsonb_build_object('status', 'RESTORED', 'last', v_database.committed_seq, 'got', p_marker_seq, 'settled', v_settled);
  end if;
  if p_marker_seq is not null and v_database.restored_at is not null then
    -- The database was not restored: one of two instances read its marker before the other's commit, and called after it.
    update exchange.database d set restored_seq = null, restored_at = null, is_restore_told = false where d.id = p_database;
    perform alerts.clear('exchange/restored/' || p_database) where v_database.is_restore_told;
  end if;
  if v_settled <> '{}' then
    -- A process settled here may have committed after the caller had read its marker: the next marker comes after it.
    select d.committed_seq into v_database.committed_seq from exchange.database d where d.id = p_database;
  end if;
  if v_database.resolution = 'marker' then
    select array_agg(p.id order by p.number) into v_open from exchange.process p
    where p.database_id = p_database and p.state = 'UNKNOWN';
    if v_open is not null then
      return jsonb_build_object('status', 'RESOLVE', 'processes', v_open, 'settled', v_settled);
    end if;
  end if;
  perform pg_advisory_xact_lock(exchange._lock_class() + 1, hashtext(p_recipient));
  select p.* into v_process from exchange.process p
  where (p.database_id = p_database or p.recipient = p_recipient) and p.state in ('STARTED', 'READY_TO_COMMIT')
  order by p.deadline limit 1;
  if v_process.id is not null then
    -- The same call may have been made twice in parallel: the first of them held the lock until now.
    if v_process.client_id = p_client and v_process.attempt = p_attempt and v_process.database_id = p_database
       and v_process.recipient = p_recipient then
      return jsonb_build_object('status', 'STARTED', 'process', exchange._shown(v_process));
    end if;
    return jsonb_build_object(
      'status', 'BUSY', 'holder', v_process.recipient, 'since', v_process.started_at,
      'retry_after', least(greatest(1, ceil(v_process.deadline - v_now)), 30), 'settled', v_settled);
  end if;
  update exchange.message m set state = 'queued', available_at = null
  where m.database_id = p_database and m.state = 'deferred' and m.available_at <= v_now;
  v_picked := exchange._pick(v_database, p_recipient, p_senders, p_max_files, p_max_bytes, v_server);
  if v_picked = '{}' then
    select min(m.available_at) - v_now into v_wait from exchange.message m
    where m.database_id = p_database and m.state = 'deferred';
    return jsonb_build_object('status', 'IDLE', 'retry_after', ceil(v_wait), 'settled', v_settled);
  end if;
  insert into exchange.process (
    id, database_id, recipient, client_id, attempt, started_at, expires_at, deadline, marker_seq, has_marker)
  values (
    exchange._process_id(p_database), p_database, p_recipient, p_client, p_attempt, exchange.now(),
    exchange.now() + make_interval(secs => v_server.started_timeout), v_now + v_server.started_timeout,
    greatest(p_marker_seq, v_database.committed_seq, 0) + 1, p_marker_seq is not null)
  -- The attempt was used by a parallel call for another database: the row of this database is locked.
  on conflict (client_id, attempt) do nothing
  returning * into v_process;
  if not found then perform exchange._refuse_attempt(); end if;
  insert into exchange.process_file (process_id, position, number)
  select v_process.id, u.position, u.number from unnest(v_picked) with ordinality u (number, position);
  update exchange.message m set state = 'leased', process_id = v_process.id where m.number = any (v_picked);
  perform exchange._note(v_process, p_client, null);
  return jsonb_build_object('status', 'STARTED', 'process', exchange._shown(v_process), 'is_new', true, 'settled', v_settled);
end $$;

-- A new id.  Its prefix lets a server derive the database without a call, and write files before it calls `prepare`, which
-- checks the database.
create or replace function exchange._process_id(p_database text) returns text
language sql volatile set search_path from current as $$
  select overlay(gen_random_uuid()::text placing encode(substring(sha256(convert_to(p_database, 'UTF8')) for 4), 'hex') from 1 for 8)
$$;

create or replace function exchange._refuse_attempt() returns void
language plpgsql volatile set search_path from current as $$
begin
  raise exception 'this attempt began a process for another database or recipient'
    using errcode = 'MX030', hint = 'Generate a new attempt for each process.';
end $$;

-- The outcomes that API_1 reports: {process: outcome}.  INFLIGHT settles nothing; nor does a report about another client's
-- process that is not in doubt.  An outcome that differs from the recorded one is a contradiction: it raises an alert and changes nothing.
create or replace function exchange._take_answers(
  p_database text, p_resolved jsonb, p_now double precision, p_actor text) returns text[]
language plpgsql volatile set search_path from current as $$
declare
  v_answer  record;
  v_process exchange.process;
  v_settled text[] := '{}';
begin
  for v_answer in select * from jsonb_each_text(coalesce(p_resolved, '{}')) order by 1 loop
    select p.* into v_process from exchange.process p
    where p.id = v_answer.key and p.database_id = p_database for update;
    if v_answer.value in ('COMMITTED', 'ABORTED')
       and (v_process.state = 'UNKNOWN' or v_process.state = 'READY_TO_COMMIT' and v_process.client_id = p_actor) then
      if v_answer.value = 'COMMITTED' then
        perform exchange._commit(v_process, p_now, p_actor);
      else
        -- Counts as an expiry, because one of its messages may make its owner crash each time.
        perform exchange._abort(v_process, p_now, 'ABORTED', p_actor, 'settled by the marker', 'expiry');
      end if;
      v_settled := v_settled || v_process.id;
    elsif v_process.outcome <> v_answer.value and v_answer.value in ('COMMITTED', 'ABORTED') then
      perform exchange._alert_contradiction(v_process, v_answer.value, p_actor);
    end if;
  end loop;
  return v_settled;
end $$;

create or replace function exchange._alert_contradiction(p_process exchange.process, p_outcome text, p_actor text) returns void
language sql volatile set search_path from current as $$
  select alerts.raise(
    'exchange/contradiction/' || p_process.id, 'exchange', 'critical',
    format('process %s was settled %s, and %s reports %s', p_process.id, p_process.outcome, p_actor, p_outcome),
    'Nothing was changed. Compare the ERP''s database with the folders, then replay or requeue by hand.')
$$;
