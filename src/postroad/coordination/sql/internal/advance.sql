-- Advances staged events: each event that is the first of all its entities is applied, voted on or dropped.
--
--   staged ──replicate, or decided commit──> applied          (refused: with others, see groups.sql; again; then parked)
--          ──two-phase──> voted yes ──decision──> applied or dropped
--                       └ voted no  ──decision──> dropped
--
-- Returns the reports for the Coordinator, one element per event.  About a thousand events in one transaction.
create or replace function coordination._advance() returns jsonb
language plpgsql set search_path from current as $$
declare
  v_reports  jsonb := '[]';
  v_changed  jsonb;
  v_event    coordination.staging;
  v_progress coordination.progress;
  v_before   integer := -1;
  v_done     integer := 0;
begin
  select * into v_progress from coordination.progress;
  while v_done > v_before and v_done < 1000 loop
    v_before := v_done;
    for v_event in
      select s.* from (
        select h.event_id from (select distinct w.entity from coordination.waiting w) e
        cross join lateral (
          select w.event_id from coordination.waiting w where w.entity = e.entity order by w.position limit 1) h
        group by h.event_id) heads
      join coordination.staging s on s.event_id = heads.event_id
      where not exists (
        select from coordination.waiting mine
        left join coordination.entity e on e.name = mine.entity
        join coordination.waiting other
          on other.entity = any (mine.entity || coalesce(e.related, '{}')) and other.position < mine.position
        where mine.event_id = s.event_id)
        and (s.staged >= s.count or s.outcome is not distinct from 'cancel')
        and (v_progress.wait = 'entity' or s.position = (select min(a.position) from coordination.staging a))
      order by s.position
    loop
      -- The event may have been applied together with an earlier one.
      continue when not exists (select from coordination.staging s where s.event_id = v_event.event_id);
      v_changed := coordination._advance_one(v_event, v_progress);
      v_reports := v_reports || v_changed;
      if v_changed -> 0 ->> 'state' in ('Committed', 'Canceled') then v_done := v_done + jsonb_array_length(v_changed); end if;
      exit when v_done >= 1000;
    end loop;
  end loop;
  return v_reports;
end $$;

-- Returns the reports of the changed events: of finished events, or of one that waits.
create or replace function coordination._advance_one(p_event coordination.staging, p_progress coordination.progress) returns jsonb
language plpgsql set search_path from current as $$
declare
  v_reason text;
  v_group  record;
begin
  if p_event.outcome = 'cancel' then
    return '[]' || coordination._close(p_event, 'Canceled');
  elsif p_event.mode = 'replicate' or p_event.outcome = 'commit' then
    if p_event.parked_at is not null or p_event.next_try_at > coordination.now() then return '[]'; end if;
    v_reason := coordination._apply_staged(array[p_event.event_id], p_progress.columns);
    if v_reason is null then return '[]' || coordination._close(p_event, 'Committed'); end if;
    v_group := coordination._apply_with_following(p_event, p_progress);
    if v_group.applied is null then return coordination._postpone(p_event, p_progress, v_reason, v_group.waits_for); end if;
    return (select jsonb_agg(coordination._close(s, 'Committed') order by s.position)
      from coordination.staging s where s.event_id = any (v_group.applied));
  elsif p_event.vote is null then
    v_reason := coordination._apply_staged(array[p_event.event_id], p_progress.columns, true);
    if v_reason is not null or not p_progress.has_checks then return '[]' || coordination._cast(p_event.event_id, v_reason); end if;
    -- The Reader's own checks call coordination.vote.
    update coordination.staging s set reason = 'waits for checks'
    where s.event_id = p_event.event_id and s.reason is distinct from 'waits for checks';
  end if;
  return '[]';
end $$;

-- Applies staged events in a subtransaction, and rolls it back if p_is_trial.  Returns null, or the reason why the tables refuse them.
create or replace function coordination._apply_staged(p_events bigint[], p_columns jsonb, p_is_trial boolean default false) returns text
language plpgsql set search_path from current as $$
declare
  v_reason text;
begin
  perform coordination._apply(null, p_events, p_columns);
  if p_is_trial then raise exception using errcode = 'PC098', message = 'rolled back'; end if;
  return null;
exception
  when sqlstate 'PC098' then return null;
  when others then
    -- In a conflict with another transaction the whole call is retried.
    if coordination._is_transient(sqlstate) then raise; end if;
    get stacked diagnostics v_reason = message_text;
    return v_reason;
end $$;

-- Whether an error is caused by other transactions or by the server, so that the same call may succeed later.
create or replace function coordination._is_transient(p_code text) returns boolean
language sql immutable parallel safe
return p_code in ('40001', '40P01', '55P03', '57014');

-- Stores a vote.
create or replace function coordination._cast(p_event bigint, p_reason text) returns jsonb
language plpgsql set search_path from current as $$
declare
  v_vote  text := case when p_reason is null then 'yes' else 'no' end;
  v_event coordination.staging;
begin
  update coordination.staging s set vote = v_vote, reason = p_reason where s.event_id = p_event returning * into v_event;
  insert into coordination.history (event_id, reader, states, by, note)
  values (p_event, coordination._require('reader'), '{Processing,Processed}', 'reader', p_reason);
  return coordination._report(v_event, 'Processed');
end $$;

-- Finishes an event: committed, cancelled, or skipped by an operator.  Returns its report.
create or replace function coordination._close(p_event coordination.staging, p_state text) returns jsonb
language plpgsql set search_path from current as $$
begin
  delete from coordination.payload p where p.event_id = p_event.event_id;
  delete from coordination.staging s where s.event_id = p_event.event_id;
  if p_event.staged < p_event.count then
    -- The event was cancelled between two of its pages: the rest is not pulled.
    update coordination.progress p set position = p_event.position, sequence = 0 where p.position < p_event.position;
  end if;
  insert into coordination."AppEvent" ("Id", "IsPublished", "Date", "CorrelationId", "AppEventTypeId", "AppEventStatusId", "Mode",
    "Position", "PayloadCount", "Entities", "FinishedAt", "Cancels", "Number")
  values (p_event.event_id, true, p_event.date, p_event.correlation_id, coordination._type(p_event.type_name),
    coordination._status(p_state), p_event.mode, p_event.position, p_event.count, p_event.entities, coordination.now(),
    p_event.cancels, nextval('coordination.number'))
  on conflict ("Id") do nothing;
  if p_event.outcome = 'cancel' then
    insert into coordination.unrestored (event_id, entities) values (p_event.event_id, p_event.entities) on conflict do nothing;
  elsif p_event.cancels is not null then
    delete from coordination.unrestored u where u.event_id = p_event.cancels;
  end if;
  insert into coordination.history (event_id, reader, states, by, note)
  values (p_event.event_id, coordination._require('reader'),
    case when p_state = 'Committed' and p_event.mode = 'replicate' then '{Processing,Processed,Committing,Committed}'
      when p_state = 'Committed' then '{Committing,Committed}'
      when p_event.outcome = 'cancel' then '{Canceling,Canceled}' else '{Canceled}' end::text[], 'reader',
    case when p_state = 'Canceled' and p_event.outcome is distinct from 'cancel' then p_event.reason end);
  -- The event may have been parked: a retry resets the attempts, but not the reason.
  if p_event.reason is not null and p_event.vote is distinct from 'no' then
    perform alerts.clear(coordination._parked_key(p_event.event_id));
  end if;
  return coordination._report(p_event, p_state);
end $$;

-- Handles an event that must be applied but that the tables refuse: it is retried with backoff, and parked after too many attempts.  The
-- backoff is five seconds at most, because it also delays the Reader after an operator has repaired its tables.  If the event depends on
-- one that is undecided or not pulled completely, the attempt does not count, because both conditions end automatically.
create or replace function coordination._postpone(
  p_event coordination.staging, p_progress coordination.progress, p_reason text, p_waits_for bigint) returns jsonb
language plpgsql set search_path from current as $$
declare
  v_event coordination.staging;
begin
  update coordination.staging s set attempts = s.attempts + n.failed, reason = p_reason || coalesce('; waits for event ' || p_waits_for, ''),
    next_try_at = coordination.now() + least(interval '100 milliseconds' * 2 ^ (n.failed * least(s.attempts, 10)), interval '5 seconds'),
    parked_at = case when n.failed = 1 and s.attempts + 1 >= p_progress.max_attempts then coordination.now() end
  from (select case when p_waits_for is null then 1 else 0 end as failed) n
  where s.event_id = p_event.event_id returning s.* into v_event;
  if p_waits_for is not null and v_event.reason = p_event.reason then return '[]'; end if;
  if v_event.parked_at is not null then
    perform alerts.raise(coordination._parked_key(p_event.event_id), 'coordination', 'error',
      format('event %s is parked at reader %s', p_event.event_id, coordination._require('reader')),
      format('%s. Later events of %s wait. Repair it, then: postroad coordination retry %s', p_reason,
        array_to_string(p_event.entities, ', '), p_event.event_id));
  end if;
  return '[]' || coordination._report(v_event, 'Processing');
end $$;

create or replace function coordination._report(p_event coordination.staging, p_state text) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object('id', p_event.event_id, 'position', p_event.position, 'state', p_state, 'staged', p_event.staged,
    'vote', p_event.vote, 'reason', p_event.reason, 'attempts', p_event.attempts,
    'is_parked', p_event.parked_at is not null, 'at', coordination.now(),
    'history', (
      select jsonb_agg(jsonb_build_object('states', h.states, 'at', h.at, 'note', h.note) order by h.at)
      from (select * from coordination.history h where h.event_id = p_event.event_id order by h.at desc limit 50) h))
$$;

-- Reports to the Coordinator the position up to which everything is finished, and single events.  Unless it was asked for, a position alone
-- is reported only if it is new, and a tenth of a second after the last report: a later call reports it, with what was finished meanwhile.
create or replace function coordination._report_progress(p_reports jsonb, p_is_asked boolean default false) returns void
language plpgsql set search_path from current as $$
declare
  v_to bigint := coordination._finished_to();
begin
  update coordination.progress p set reported_at = coordination.now(), reported_to = v_to
  where not p.needs_snapshot
    and (p_is_asked or p_reports <> '[]' or v_to <> p.reported_to and p.reported_at < coordination.now() - interval '100 milliseconds');
  -- Reports of a Reader that must take a snapshot are ignored, too.
  if not found then return; end if;
  perform mbus.post_co_votes(jsonb_build_object('version', 1, 'kind', 'progress',
    'reader', coordination._require('reader'),
    'generation', (select p.generation from coordination.progress p),
    'finished_to', v_to, 'at', coordination.now(), 'events', p_reports),
    mbus.trace_headers());
  -- A decision may wait for these reports; progress alone is taken from the queue by polling.
  if p_reports <> '[]' then perform mbus.notify(array['co_votes']); end if;
end $$;

create or replace function coordination._finished_to() returns bigint
language sql stable set search_path from current as $$
  select coalesce((select min(s.position) - 1 from coordination.staging s), (select p.position from coordination.progress p))
$$;

-- The key of the alert about a parked event.  Several Readers may raise alerts in the same database.
create or replace function coordination._parked_key(p_event bigint) returns text
language sql stable set search_path from current as $$
  select format('coordination.parked.%s.%s', (select n.name from coordination.node n where n.role = 'reader'), p_event)
$$;
