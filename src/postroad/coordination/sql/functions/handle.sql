-- Handles a message of the Coordinator at the Reader, see README.md.  Idempotent.  Raises PC010.
create or replace function coordination.settle(p_message jsonb) returns void
language plpgsql security definer set plan_cache_mode = force_generic_plan set search_path from current as $$
declare
  v_name     text := coordination._require('reader');
  v_reports  jsonb := '[]';
  v_event    coordination.staging;
begin
  if p_message ->> 'reader' <> v_name then return; end if;
  perform from coordination.progress for update;
  case p_message ->> 'kind'
    when 'decisions' then
      with decided as (
        select d.* from jsonb_to_recordset(p_message -> 'decisions') d (id bigint, position bigint, outcome text)),
      known as (
        update coordination.staging s set outcome = d.outcome from decided d
        where d.id = s.event_id and s.outcome is null)
      insert into coordination.early_decision (event_id, outcome)
      select d.id, d.outcome from decided d cross join coordination.progress p
      where d.position > p.position and not exists (select from coordination.staging s where s.event_id = d.id)
        and not exists (select from coordination."AppEvent" e where e."Id" = d.id)
      on conflict do nothing;
    when 'retry' then
      update coordination.staging s set parked_at = null, attempts = 0, next_try_at = null
      where s.event_id = (p_message ->> 'id')::bigint;
      update coordination.entity e set applied = null where e.role = 'replica';
    when 'skip' then
      for v_event in
        update coordination.staging s set parked_at = null, reason = 'skipped by an operator: ' || coalesce(s.reason, '')
        where s.event_id = (p_message ->> 'id')::bigint and s.parked_at is not null returning s.*
      loop
        v_reports := v_reports || coordination._close(v_event, 'Canceled');
      end loop;
    when 'snapshot' then
      update coordination.progress p set needs_snapshot = true,
        generation = greatest(p.generation, (p_message ->> 'newest')::integer)
      where p.generation <= (p_message ->> 'generation')::integer;
      return;
    else null;
  end case;
  v_reports := v_reports || coordination._advance();
  if p_message ->> 'kind' = 'ask' then v_reports := v_reports || coordination._reports(); end if;
  perform coordination._report_progress(v_reports, p_message ->> 'kind' = 'ask');
end $$;

-- Called periodically by a Reader: retries events that are due, and repeats reports that got no answer within p_repeat.
-- Returns whether there is more to do.  Raises PC010.
create or replace function coordination.attend(p_repeat interval default '5 seconds') returns boolean
language plpgsql security definer set search_path from current as $$
declare
  v_finished bigint;
  v_reports  jsonb := '[]';
  v_progress coordination.progress;
begin
  perform coordination._require('reader');
  -- In the usual case nothing waits.
  if not exists (select from coordination.staging) and not exists (select from coordination.progress p where p.reported_to <> p.position) then
    return false;
  end if;
  select * into v_progress from coordination.progress for update;
  v_finished := coordination._finished_to();
  v_reports := coordination._advance();
  if v_reports = '[]' and v_progress.reported_at < coordination.now() - p_repeat then
    v_reports := coordination._reports();
  end if;
  perform coordination._report_progress(v_reports);
  return coordination._finished_to() > v_finished;
end $$;

create or replace function coordination._reports() returns jsonb
language sql stable set search_path from current as $$
  select coalesce(jsonb_agg(coordination._report(s, case when s.staged < s.count then 'Preparing' when s.vote is not null then 'Processed'
    when s.attempts > 0 then 'Processing' else 'Prepared' end) order by s.position), '[]')
  from (select * from coordination.staging s order by s.position limit 500) s
$$;

-- Stores the settings of this Reader's service.
create or replace function coordination.configure_reader(p_wait text, p_max_attempts integer, p_has_checks boolean) returns void
language sql security definer set search_path from current as $$
  update coordination.progress p set wait = p_wait, max_attempts = p_max_attempts, has_checks = p_has_checks
  where (p.wait, p.max_attempts, p.has_checks) is distinct from (p_wait, p_max_attempts, p_has_checks)
$$;

-- Announces this Reader and its progress to the Coordinator.  Raises PC010.
create or replace function coordination.announce() returns void
language plpgsql security definer set search_path from current as $$
begin
  perform coordination._require('reader');
  perform from coordination.progress for update;
  -- Foreign keys may have changed since the entities were registered.
  perform coordination._order_entities();
  perform coordination._report_progress(coordination._reports(), true);
end $$;

-- Votes for a Reader's own check: null is yes, a reason is no.  Only for an event that waits for checks.
-- Raises PC010, PC005 for an event that does not wait here.
create or replace function coordination.vote(p_event bigint, p_reason text default null) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_event coordination.staging;
begin
  perform coordination._require('reader');
  perform from coordination.progress for update;
  select * into v_event from coordination.staging s where s.event_id = p_event;
  perform coordination._refuse_if(not found, 'PC005', format('event %s does not wait at this reader', p_event), 'see coordination.staging');
  if v_event.vote is null then
    perform set_config('postroad.traceparent', coalesce(v_event.traceparent, ''), true);
    perform coordination._report_progress(jsonb_build_array(coordination._cast(p_event, p_reason)));
  end if;
end $$;
