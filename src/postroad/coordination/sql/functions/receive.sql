-- Handles a message at the Coordinator: events of the Writer, progress and votes of a Reader.  Messages may arrive twice, late and in any
-- order. p_deadline: the time in which a two-phase event must get its votes.  Raises PC010, PC014 for a message of another version or kind.
create or replace function coordination.receive(p_message jsonb, p_deadline interval default '30 seconds') returns void
language plpgsql security definer set plan_cache_mode = force_generic_plan set search_path from current as $$
declare
  v_restored bigint[];
begin
  perform coordination._require('coordinator');
  perform coordination._refuse_if(
    p_message ->> 'version' is distinct from '1' or coalesce(p_message ->> 'kind', '') not in ('events', 'progress'),
    'PC014', format('a message of version %s and kind %s', p_message ->> 'version', p_message ->> 'kind'),
    'this Coordinator supports events and progress of version 1');
  -- One message at a time, because a decision depends on several.
  perform coordination._lock(3);
  if p_message ->> 'kind' = 'events' then
    perform coordination._receive_events(p_message -> 'events', p_deadline);
    update coordination.acknowledged a set writer_to = (p_message ->> 'finished_to')::bigint
    where a.writer_to < (p_message ->> 'finished_to')::bigint;
    -- The Writer has finished these events, but the message that reported it was lost.
    with restored as (
      update coordination."WriterEvent" e set "RollbackReason" = null
      where e."RollbackReason" is not null and e."FinishedAt" is null and e."Position" <= (select a.writer_to from coordination.acknowledged a)
      returning e."Id")
    select array_agg(r."Id") into v_restored from restored r;
    if v_restored is not null then perform coordination._conclude(null, v_restored); end if;
  else
    perform coordination._receive_progress(p_message);
  end if;
end $$;

create or replace function coordination._receive_events(p_events jsonb, p_deadline interval) returns void
language plpgsql set enable_seqscan = off set search_path from current as $$
declare
  v_now      timestamptz := coordination.now();
  v_ids      bigint[] := array(select e.id from jsonb_to_recordset(p_events) e (id bigint));
  v_known    bigint[];
  v_decided  bigint[];
  v_finished bigint[];
  v_two      bigint[];
begin
  perform coordination._type(t.type) from (select distinct e.type from jsonb_to_recordset(p_events) e (type text)) t;
  select array_agg(w."Id") into v_known from coordination."WriterEvent" w where w."Id" = any (v_ids);
  with come as (
    insert into coordination."WriterEvent" ("Id", "Date", "CorrelationId", "AppEventTypeId", "AppEventStatusId", "Mode", "Position",
      "PayloadCount", "Entities", "Cancels", "Deadline", "ReceivedAt", "PublishedAt")
    select e.id, e.date, e.correlation_id, t."Id", coordination._status('Activated'), e.mode, e.position, e.count, e.entities, e.cancels,
      case when e.mode = 'two-phase' then v_now + p_deadline end, v_now, e.published_at
    from jsonb_to_recordset(p_events) e (id bigint, position bigint, count integer, mode text, type text, entities text[],
      date timestamptz, correlation_id uuid, cancels bigint, published_at timestamptz)
    join coordination."AppEventType" t on t."Name" = e.type
    on conflict ("Id") do nothing
    returning "Id", "Mode")
  select array_agg(c."Id") filter (where c."Mode" = 'two-phase') into v_two from come c;
  if v_known is not null or p_events @? '$[*] ? (@.rollback != null)' then
    with reported as (
      update coordination."WriterEvent" w set "RollbackReason" = e.rollback, "AppEventStatusId" = coordination._status('Canceling'), "FinishedAt" = null
      from jsonb_to_recordset(p_events) e (id bigint, rollback text)
      where w."Id" = e.id and w."RollbackReason" is distinct from e.rollback
      returning w."Id", e.rollback)
    insert into coordination.history (event_id, states, at, by, note)
    select r."Id", '{Canceling}', v_now, 'writer', r.rollback from reported r where r.rollback is not null;
  end if;
  perform coordination._decide(v_two);
  perform coordination._conclude(null, v_ids);
  -- The Writer has resent these events because it has not received the outcome.
  if v_known is not null then
    select array_agg(d.event_id) into v_decided from coordination.decision d where d.event_id = any (v_known);
    select array_agg(w."Id") into v_finished from coordination."WriterEvent" w
    where w."Id" = any (v_known) and w."FinishedAt" is not null and w."Id" <> all (coalesce(v_decided, '{}'));
    perform coordination._post_decisions(v_decided, v_finished);
  end if;
end $$;

create or replace function coordination._receive_progress(p_message jsonb) returns void
language plpgsql set search_path from current as $$
declare
  v_reader  text := p_message ->> 'reader';
  v_to      bigint := (p_message ->> 'finished_to')::bigint;
  v_at      timestamptz := (p_message ->> 'at')::timestamptz;
  v_generation integer := coalesce((p_message ->> 'generation')::integer, 0);
  v_newest  integer;
  v_from    bigint;
  v_low     bigint := coordination._low();
  v_copied  boolean;
  v_asked   boolean;
  v_again   bigint[];
begin
  -- The Reader was removed, and events and decisions were not kept for it since; or it reports an earlier generation, because its database
  -- was restored from a backup or because this message is late.  In the latter case the Reader ignores the answer.
  select max(k.generation) into v_newest from (
    select x.generation from coordination.removed_reader x where x.name = v_reader and x.generation >= v_generation
    union all
    select r.generation from coordination.reader r where r.name = v_reader and r.generation > v_generation) k;
  if v_newest is not null then
    perform mbus.post_co_decide(jsonb_build_object('version', 1, 'kind', 'snapshot', 'reader', v_reader, 'generation', v_generation,
      'newest', v_newest));
    return;
  end if;
  delete from coordination.removed_reader x where x.name = v_reader;
  select r.finished_to, r.generation < v_generation, r.asked_at is not null into v_from, v_copied, v_asked
  from coordination.reader r where r.name = v_reader;
  v_from := coalesce(v_from, 0);
  if v_asked then perform alerts.clear('coordination.reader.' || v_reader); end if;
  insert into coordination.reader as r (name, finished_to, generation) values (v_reader, v_to, v_generation)
  on conflict (name) do update set finished_to = greatest(r.finished_to, excluded.finished_to), generation = excluded.generation, heard_at = coordination.now(),
    asked_at = null;
  with reported as (
    -- A message may report an event twice; the later report includes the earlier one.
    select distinct on (e.id) e.* from jsonb_to_recordset(p_message -> 'events')
      e (id bigint, position bigint, state text, staged integer, vote text, reason text, attempts integer, is_parked boolean,
        at timestamptz, history jsonb)
    order by e.id, e.at desc),
  kept as (
    insert into coordination.reader_event as r (event_id, reader, state, staged, vote, reason, attempts, is_parked, at)
    select s.id, v_reader, s.state, s.staged, s.vote, s.reason, s.attempts, s.is_parked, s.at from reported s
    on conflict (event_id, reader) do update set
      state = excluded.state, staged = greatest(r.staged, excluded.staged), vote = coalesce(r.vote, excluded.vote),
      reason = excluded.reason, attempts = excluded.attempts, is_parked = excluded.is_parked, at = excluded.at
    -- The progress only advances; a late message changes nothing.
    where r.at < excluded.at and r.state not in ('Committed', 'Canceled')
    returning r.event_id)
  insert into coordination.history (event_id, reader, states, at, by, note)
  select k.event_id, v_reader, h.states, h.at, 'reader', h.note
  from kept k
  join reported s on s.id = k.event_id
  cross join lateral jsonb_to_recordset(s.history) h (states text[], at timestamptz, note text)
  where h.at > coalesce((
    select max(o.at) from coordination.history o where o.event_id = k.event_id and o.reader = v_reader), '-infinity');
  if v_to > v_from then
    insert into coordination.reader_progress (reader, finished_to, after, at) values (v_reader, v_to, v_from, v_at) on conflict do nothing;
    -- Finished by a snapshot, without a separate report.
    update coordination.reader_event r set is_parked = false from coordination."WriterEvent" e
    where r.reader = v_reader and r.is_parked and e."Id" = r.event_id and e."Position" <= v_to;
  end if;
  perform coordination._follow_readers(array(select (e ->> 'id')::bigint from jsonb_array_elements(p_message -> 'events') e));
  select array_agg(d.event_id) into v_again
  from jsonb_to_recordset(p_message -> 'events') e (id bigint, state text)
  join coordination.decision d on d.event_id = e.id where e.state not in ('Committed', 'Canceled');
  perform coordination._decide(array(
    select e.id from jsonb_to_recordset(p_message -> 'events') e (id bigint, vote text) where e.vote is not null
    union
    -- The snapshot of a Reader may contain events on which it never voted: all up to now if the Reader is new or has a new snapshot,
    -- otherwise those since its last report.
    select e."Id" from coordination."WriterEvent" e
    where e."FinishedAt" is null and e."Mode" = 'two-phase' and e."Position" <= v_to
      and (v_copied or e."Position" > v_from)));
  perform coordination._conclude(v_low);
  -- Events that are decided but not finished at the Reader: the decision was lost.
  perform coordination._post_decisions(v_again, '{}');
end $$;

-- Sets the state of undecided events according to the reports of their readers:  Preparing and Processing with the first reader, Prepared
-- and Processed with the last.  States only advance.
create or replace function coordination._follow_readers(p_events bigint[]) returns void
language sql volatile set search_path from current as $$
  update coordination."WriterEvent" e set "AppEventStatusId" = coordination._status(n.state)
  from (
    select s."Id", case when min(s.rank) >= coordination._rank('Processed') then 'Processed'
      when min(s.rank) >= coordination._rank('Prepared') and max(s.rank) >= coordination._rank('Processing') then 'Processing'
      when min(s.rank) >= coordination._rank('Prepared') then 'Prepared'
      when max(s.rank) >= coordination._rank('Preparing') then 'Preparing' end as state
    from (
      select w."Id", coalesce(coordination._rank(x.state),
        case when r.finished_to >= w."Position" then coordination._rank('Committed') else 0 end) as rank
      from coordination."WriterEvent" w
      cross join coordination.reader r
      left join coordination.reader_event x on x.event_id = w."Id" and x.reader = r.name
      where w."Id" = any (p_events) and w."FinishedAt" is null) s
    group by s."Id") n
  where e."Id" = n."Id" and coordination._rank(coordination._status_name(e."AppEventStatusId")) < coordination._rank(n.state)
$$;
