-- Assigns positions to all visible events and posts them to Coordinator and Readers, in one transaction.  Returns the number of posted
-- events.
--
-- Order.  There is one publisher at a time, which holds a lock until its session ends.  Events that one snapshot shows and earlier ones
-- did not come after everything earlier, so a prefix of positions is a state that the Writer had.  Inside a snapshot, events follow the
-- number drawn when their commit began: a transaction that waited for a row of another one drew later.  A long transaction does not block
-- others.
-- Locks: the publisher's advisory lock, tried.  Raises PC010.
create or replace function coordination.publish(p_resend interval default '30 seconds') returns integer
language plpgsql security definer set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set search_path from current as $$
declare
  v_now   timestamptz := coordination.now();
  v_count integer := 0;
  v_after bigint;
  v_mark  text;
  v_last  bigint;
begin
  perform coordination._require('writer');
  if not coordination._try_lock(1) then return 0; end if;
  -- Every event up to this number is published, or was rolled back.  An index of unpublished events also has entries of published ones
  -- until the next vacuum, and each search would pass them all; so the publisher's session stores where to begin.  It is stored in
  -- settings of the session, because a rollback restores them.
  v_after := coalesce(nullif(current_setting('coordination.published_to', true), ''), '0')::bigint;
  -- coordination.last: the last number that was given when an earlier call published, and a transaction that began after that.
  -- Transactions that drew earlier numbers are older than it: when all of them have ended, the call that detects this publishes their
  -- events.
  v_mark := nullif(current_setting('coordination.last', true), '');
  if pg_snapshot_xmin(pg_current_snapshot()) > split_part(v_mark, ' ', 2)::xid8 then
    perform set_config('coordination.published_to', split_part(v_mark, ' ', 1), false), set_config('coordination.last', '', false);
  end if;
  v_last := case when pg_current_xact_id_if_assigned() is null then pg_sequence_last_value('coordination."AppEvent_Id_seq"') end;
  if pg_sequence_last_value('coordination.publisher_waits') is distinct from 2
    and not exists (select from coordination."AppEvent" e where not e."IsPublished" and e."Id" > v_after)
  then
    -- From now on a transaction that captures an event sends a notice; events that were committed before are read below.
    perform setval('coordination.publisher_waits', 2);
  end if;
  if exists (select from coordination."AppEvent" e where not e."IsPublished" and e."Id" > v_after) then
    with due as materialized (
      select e."Id", f.last_sequence, f.last_id, f.type_ids
      from coordination."AppEvent" e
      cross join lateral (
        select max(p.sequence + coalesce(p.count, 1) - 1) as last_sequence, greatest(e."CommitNumber", max(p.id)) as last_id, array_agg(distinct p.type_id) as type_ids
        from coordination.payload p where p.event_id = e."Id") f
      where not e."IsPublished" and e."Id" > v_after),
    placed as materialized (
      select d.*, nextval('coordination.position') as position
      from (select * from due order by last_id) d),
    published as (
      update coordination."AppEvent" e set
        "IsPublished" = true, "PublishedAt" = v_now, "Position" = p.position, "PayloadCount" = coalesce(p.last_sequence, 0),
        "AppEventStatusId" = coordination._status('Saving'),
        "Entities" = array(select distinct t."Entity" from coordination."AppEventType" t where t."Id" = any (p.type_ids) order by 1)
      from placed p where p."Id" = e."Id"
      returning e."Position", coordination._describe(e) as described),
    posted as (
      select coordination._post_events(array_agg(p.described order by p."Position")) as count from published p)
    select coalesce(t.count, 0) into v_count from posted t;
    if v_last is not null and coalesce(current_setting('coordination.last', true), '') = '' then
      perform set_config('coordination.last', v_last || ' ' || pg_current_xact_id(), false);
    end if;
  end if;
  return v_count + coordination._resend_events(p_resend, v_now);
end $$;

-- The first position without an outcome, or the next one.  The search starts where the session found it last, because an outcome is never
-- reverted.
create or replace function coordination._unfinished_from() returns bigint
language plpgsql set search_path from current as $$
declare
  v_from bigint := coalesce(nullif(current_setting('coordination.unfinished_from', true), ''), '0')::bigint;
begin
  v_from := coalesce(
    (select e."Position" from coordination."AppEvent" e
     where e."FinishedAt" is null and e."Position" >= v_from order by e."Position" limit 1),
    (select max(e."Position") + 1 from coordination."AppEvent" e));
  perform set_config('coordination.unfinished_from', v_from::text, false);
  return v_from;
end $$;

-- Posts events, five hundred to a message.  A message carries a trace if all its events belong to it; each event also names its own.
create or replace function coordination._post_events(p_events jsonb[]) returns integer
language plpgsql set search_path from current as $$
declare
  v_message jsonb;
  v_line    text;
  v_waits   boolean := false;
  -- Everything before this position is finished here, so the Coordinator need not keep the outcomes.
  v_to      bigint := least((p_events[1] ->> 'position')::bigint, coordination._unfinished_from()) - 1;
begin
  for v_message, v_line in
    select jsonb_build_object('version', 1, 'kind', 'events', 'writer', (select n.name from coordination.node n where n.role = 'writer'),
      'finished_to', v_to, 'events', jsonb_agg(u.event order by u.place)),
      coordination._only_trace(array_agg(u.event ->> 'traceparent'))
    from unnest(p_events) with ordinality u (event, place)
    group by (u.place - 1) / 500 order by (u.place - 1) / 500
  loop
    perform mbus.post_co_events(v_message, mbus.trace_headers(v_line));
    v_waits := v_waits or v_message -> 'events' @> '[{"mode": "two-phase"}]';
  end loop;
  -- A decision waits for these events; others are taken from the queue by polling, many at a time.
  if v_waits then perform mbus.notify(array['co_events']); end if;
  return cardinality(p_events);
end $$;

-- An event in the form used in messages.  Without a search_path, so that the planner inlines it.
create or replace function coordination._describe(e coordination."AppEvent") returns jsonb
language sql stable as $$
  select jsonb_build_object('id', e."Id", 'position', e."Position", 'count', e."PayloadCount", 'mode', e."Mode",
    'type', (select t."Name" from coordination."AppEventType" t where t."Id" = e."AppEventTypeId"),
    'entities', e."Entities", 'date', e."Date", 'published_at', e."PublishedAt",
    'correlation_id', e."CorrelationId", 'cancels', e."Cancels", 'traceparent', e."TraceParent",
    'rollback', case when e."AppEventStatusId" = coordination._status('Canceling') then coalesce(e."Reason", 'not restored yet') end)
$$;

-- Resends events without an outcome: the message, or the answer, was lost.  Five hundred per call: first those that need a decision, then
-- those sent longest ago, so that many events that wait for a Reader do not hide a lost one.
create or replace function coordination._resend_events(p_after interval, p_now timestamptz) returns integer
language plpgsql set search_path from current as $$
declare
  v_events jsonb[];
  v_oldest bigint := coordination._unfinished_from();
begin
  -- No other event is older.
  if not exists (select from coordination."AppEvent" e where e."Position" = v_oldest and e."PublishedAt" < p_now - p_after) then
    return 0;
  end if;
  with late as (
    -- Always includes the oldest event, whose age is checked above.
    select e."Id" from coordination."AppEvent" e
    where e."FinishedAt" is null and e."Position" >= v_oldest and e."PublishedAt" < p_now - p_after
    order by e."Position" <> v_oldest, e."Mode" = 'replicate', e."PublishedAt", e."Position" limit 500),
  noted as (
    -- The time when it was first published.
    insert into coordination.history (event_id, states, at, by)
    select e."Id", '{Saving}', e."PublishedAt", 'writer' from coordination."AppEvent" e join late l on l."Id" = e."Id"
    where not exists (select from coordination.history h where h.event_id = e."Id" and h.states = '{Saving}')),
  marked as (
    update coordination."AppEvent" e set "PublishedAt" = p_now from late l where l."Id" = e."Id"
    returning e."Position", coordination._describe(e) as described)
  select array_agg(m.described order by m."Position") into v_events from marked m;
  if v_events is null then return 0; end if;
  return coordination._post_events(v_events);
end $$;

-- Reports to the Coordinator that a rollback was refused, or that a refused rollback is done.
create or replace function coordination._report_rollback(p_event bigint) returns void
language sql volatile set search_path from current as $$
  select coordination._post_events(array[coordination._describe(e)]) from coordination."AppEvent" e where e."Id" = p_event
$$;
