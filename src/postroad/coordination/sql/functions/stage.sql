-- Stages a page that was pulled from the Writer, with the cursor, in one transaction; applies what can be
-- applied, votes on two-phase events, and reports to the Coordinator.  A page that does not continue the cursor changes nothing.
-- p_afters, p_befores: the images of its payloads, each a JSON array.
-- Returns the cursor: position, sequence, finished_to.  Raises PC010, PC014 for a page of another version.
-- Locks: the row of progress, which every operation of a Reader locks first; then staging, then the entities' tables.
create or replace function coordination.stage(p_page jsonb, p_afters text[] default null, p_befores text[] default null) returns jsonb
language plpgsql security definer set plan_cache_mode = force_generic_plan set search_path from current as $$
declare
  v_progress coordination.progress;
  v_reports     jsonb := '[]';
  v_last     record;
  v_payloads coordination.page := (p_page -> 'payloads', p_afters, p_befores);
begin
  perform coordination._require('reader');
  perform coordination._refuse_if(coalesce(p_page ->> 'version', '') <> '2', 'PC014', format('a page of version %s', p_page ->> 'version'),
    'this Reader supports version 2');
  select * into v_progress from coordination.progress for update;
  if (p_page #>> '{from,position}')::bigint = v_progress.position
    and (p_page #>> '{from,sequence}')::integer = v_progress.sequence and jsonb_array_length(p_page -> 'events') > 0
  then
    if v_progress.columns <> p_page -> 'columns' then
      v_progress.columns := p_page -> 'columns';
      update coordination.progress p set columns = v_progress.columns;
    end if;
    if not coordination._apply_page(p_page, v_payloads, v_progress) then
      perform coordination._stage_page(p_page, v_payloads, v_progress);
      v_reports := coordination._advance();
    end if;
    select e.id, e.position, e.count, coalesce(s.staged, e.count) as staged into v_last
    from jsonb_to_recordset(p_page -> 'events') e (id bigint, position bigint, count integer)
    left join coordination.staging s on s.event_id = e.id
    order by e.position desc limit 1;
    if v_last.staged >= v_last.count then
      v_progress.position := v_last.position;
      v_progress.sequence := 0;
    else
      v_progress.sequence := v_last.staged;
    end if;
    update coordination.progress p set position = v_progress.position, sequence = v_progress.sequence;
    perform set_config('postroad.traceparent', coalesce(coordination._only_trace(array(
      select e ->> 'traceparent' from jsonb_array_elements(p_page -> 'events') e)), ''), true);
    perform coordination._report_progress(v_reports);
  end if;
  return jsonb_build_object('position', v_progress.position, 'sequence', v_progress.sequence,
    'finished_to', coordination._finished_to());
end $$;

-- Applies a page directly. Returns false, with nothing changed, unless all events are complete and need no votes, nothing else waits, and
-- the tables accept the rows.
create or replace function coordination._apply_page(
  p_page jsonb, p_payloads coordination.page, p_progress coordination.progress) returns boolean
language plpgsql set search_path from current as $$
declare
  v_now timestamptz := coordination.now();
begin
  if p_progress.sequence > 0 or p_progress.included <> '{}'
    or exists (select from coordination.staging) or exists (select from coordination.early_decision)
    or not (
      select bool_and(e.mode = 'replicate' and e.outcome is null or e.outcome is not distinct from 'commit')
        and sum(e.count) = (select coalesce(sum(x.k), 0) from jsonb_to_recordset(p_page -> 'payloads') x (k integer))
      from jsonb_to_recordset(p_page -> 'events') e (mode text, outcome text, count integer))
  then
    return false;
  end if;
  begin
    perform coordination._apply(p_payloads, null, p_page -> 'columns');
    -- Nothing was applied for an ignored entity, and its columns may be unknown.
    perform coordination._type(e.type) from (select distinct e.type from jsonb_to_recordset(p_page -> 'events') e (type text)) e;
    with done as (
      insert into coordination."AppEvent" ("Id", "IsPublished", "Date", "CorrelationId", "AppEventTypeId", "AppEventStatusId",
        "Mode", "Position", "PayloadCount", "Entities", "FinishedAt", "Cancels", "Number")
      select e.id, true, e.date, e.correlation_id, t."Id", coordination._status('Committed'), e.mode, e.position, e.count, e.entities, v_now, e.cancels,
        nextval('coordination.number')
      from (
        select * from jsonb_to_recordset(p_page -> 'events') e (id bigint, position bigint, count integer, mode text, type text,
          entities text[], date timestamptz, correlation_id uuid, cancels bigint)
        order by e.position) e
      join coordination."AppEventType" t on t."Name" = e.type
      returning "Cancels")
    delete from coordination.unrestored u using done d where u.event_id = d."Cancels";
  exception when others then
    if coordination._is_transient(sqlstate) then raise; end if;
    -- Staging the events one by one finds out which of them was refused.
    return false;
  end;
  return true;
end $$;

-- Stages a page: every payload is stored until its event is decided or can be applied.
create or replace function coordination._stage_page(
  p_page jsonb, p_payloads coordination.page, p_progress coordination.progress) returns void
language plpgsql set search_path from current as $$
declare
  v_now    timestamptz := coordination.now();
  v_reader text := coordination._require('reader');
begin
  -- Events that a snapshot contained are skipped.
  update coordination.progress p set included = array(
    select i from unnest(p.included) i
    where i not in (select (e ->> 'id')::bigint from jsonb_array_elements(p_page -> 'events') e))
  where p.included <> '{}';
  with come as (
    insert into coordination.staging (event_id, position, count, mode, entities, type_name, date, correlation_id, cancels, outcome,
      traceparent)
    select e.id, e.position, e.count, e.mode, e.entities, e.type, e.date, e.correlation_id, e.cancels, coalesce(e.outcome, d.outcome),
      e.traceparent
    from jsonb_to_recordset(p_page -> 'events') e (id bigint, position bigint, count integer, mode text, type text, entities text[],
      date timestamptz, correlation_id uuid, cancels bigint, outcome text, traceparent text)
    left join coordination.early_decision d on d.event_id = e.id
    where e.id <> all (p_progress.included)
    on conflict (event_id) do nothing
    returning event_id, position, entities),
  noted as (
    insert into coordination.history (event_id, reader, states, at, by)
    select c.event_id, v_reader, '{Preparing}', v_now, 'reader' from come c)
  insert into coordination.waiting (entity, position, event_id)
  select u.entity, c.position, c.event_id from come c cross join lateral unnest(c.entities) u (entity);
  -- An event that compensates a cancelled one may add the rows that a parked event needs.
  update coordination.staging s set parked_at = null, next_try_at = null, attempts = least(s.attempts, p_progress.max_attempts - 1)
  where s.attempts > 0 and exists (select from jsonb_to_recordset(p_page -> 'events') e (cancels bigint) where e.cancels is not null);
  delete from coordination.early_decision d
  where d.event_id in (select (e ->> 'id')::bigint from jsonb_array_elements(p_page -> 'events') e);
  perform coordination._type(x.n || case x.o when 'I' then '.Insert' when 'U' then '.Update' else '.Delete' end)
  from (select distinct x.n, x.o from jsonb_to_recordset(p_page -> 'payloads') x (n text, o text)) x;
  with come as (
    insert into coordination.payload (event_id, sequence, id, type_id, count, after, before, changed)
    select x.e, x.s, x.v, t."Id", x.k, x.afters::json, x.befores::json, x.u
    from rows from (jsonb_to_recordset(p_payloads.rows) as (e bigint, s integer, v bigint, n text, o text, k integer, u text[]),
      unnest(p_payloads.afters), unnest(p_payloads.befores)) x (e, s, v, n, o, k, u, afters, befores)
    join coordination.staging g on g.event_id = x.e
    join coordination."AppEventType" t on t."Entity" = x.n and left(t."Operation", 1) = x.o
    on conflict do nothing
    returning event_id, count),
  counted as (
    update coordination.staging s set staged = s.staged + c.count
    from (select event_id, sum(count) as count from come group by event_id) c
    where c.event_id = s.event_id
    returning s.event_id, s.staged, s.count)
  insert into coordination.history (event_id, reader, states, at, by, note)
  select c.event_id, v_reader, case when c.staged >= c.count then '{Prepared}'::text[] else '{Preparing}' end, v_now, 'reader',
    c.staged || '/' || c.count
  from counted c;
end $$;
