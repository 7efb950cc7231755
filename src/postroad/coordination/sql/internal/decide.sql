-- Decides about events, once for each, in the transaction that posts the decision: any no means cancel, a yes from every voter means
-- commit.  Without a reader there is no yes: the event waits for one, or for its deadline.
create or replace function coordination._decide(p_events bigint[]) returns void
language plpgsql set search_path from current as $$
begin
  perform coordination._write_decisions(array_agg(d.id), array_agg(d.outcome), array_agg(d.reason)) from (
    select e."Id" as id,
      case when n.reason is null then 'commit' else 'cancel' end as outcome, n.reason
    from coordination."WriterEvent" e
    left join lateral (
      select string_agg(format('%s: %s', r.reader, r.reason), '; ' order by r.reader) as reason
      from coordination.reader_event r where r.event_id = e."Id" and r.vote = 'no') n on true
    where e."Id" = any (p_events) and e."Mode" = 'two-phase'
      and not exists (select from coordination.decision d where d.event_id = e."Id")
      and (n.reason is not null or exists (select from coordination.reader) and not exists (
        select from coordination.reader r where r.is_voter and r.finished_to < e."Position" and not exists (
          select from coordination.reader_event v where v.event_id = e."Id" and v.reader = r.name and v.vote = 'yes')))) d
  having count(*) > 0;
end $$;

create or replace function coordination._write_decisions(p_ids bigint[], p_outcomes text[], p_reasons text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_new bigint[];
begin
  with written as (
    insert into coordination.decision (event_id, outcome, reason)
    select u.* from unnest(p_ids, p_outcomes, p_reasons) u
    on conflict (event_id) do nothing returning event_id, outcome, reason),
  marked as (
    update coordination."WriterEvent" e set
      "AppEventStatusId" = case w.outcome when 'commit' then coordination._status('Committing') else coordination._status('Canceling') end, "IsPublished" = true
    from written w where w.event_id = e."Id" and e."FinishedAt" is null),
  noted as (
    insert into coordination.history (event_id, states, by, note)
    select w.event_id, array[case w.outcome when 'commit' then 'Committing' else 'Canceling' end], 'coordinator', w.reason
    from written w)
  select array_agg(event_id) into v_new from written;
  perform coordination._post_decisions(v_new, '{}');
  perform coordination._conclude(null, v_new);
end $$;

-- Posts decisions, for the first time or again, and the finished replicated events, five thousand to a message.  They are listed by number,
-- because an event that the Coordinator has not received must stay unfinished at the Writer, which resends it.
create or replace function coordination._post_decisions(p_ids bigint[], p_finished bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_ids      bigint[] := coalesce(p_ids, '{}');
  v_finished bigint[] := coalesce(p_finished, '{}');
  v_from     integer := 1;
begin
  while cardinality(v_ids) > 0 or v_from <= cardinality(v_finished) loop
    perform mbus.post_co_decide(jsonb_build_object('version', 1, 'kind', 'decisions',
      'finished_to', coordination._low(), 'finished', to_jsonb(v_finished[v_from:v_from + 4999]),
      'decisions', (
        select coalesce(jsonb_agg(jsonb_build_object('id', d.event_id, 'position', e."Position", 'outcome', d.outcome,
          'reason', d.reason) order by e."Position"), '[]')
        from coordination.decision d join coordination."WriterEvent" e on e."Id" = d.event_id
        where d.event_id = any (v_ids))),
      mbus.trace_headers());
    if v_ids <> '{}' then perform mbus.notify(array['co_decide']); end if;
    v_ids := '{}';
    v_from := v_from + 5000;
  end loop;
end $$;

create or replace function coordination._low() returns bigint
language sql stable set search_path from current as $$
  select coalesce(
    (select min(r.finished_to) from coordination.reader r),
    (select max(e."Position") from coordination."WriterEvent" e), 0)
$$;

-- Finishes events that every reader has finished, and notifies the Writer of those without a decision.  Checks the events after p_after, up
-- to the position that every reader had reached before this call, and the earlier events p_events, which were not finished with the others.
create or replace function coordination._conclude(p_after bigint, p_events bigint[] default '{}') returns void
language plpgsql set enable_seqscan = off set search_path from current as $$
declare
  v_low       bigint := coordination._low();
  v_committed bigint[];
  v_canceled  bigint[];
  v_finished  bigint[];
begin
  select array_agg(u."Id") filter (where d.outcome is distinct from 'cancel'), array_agg(u."Id") filter (where d.outcome = 'cancel'),
    array_agg(u."Id") filter (where d.outcome is null)
  into v_committed, v_canceled, v_finished from (
    select w.* from coordination."WriterEvent" w where w."FinishedAt" is null and w."Position" > p_after and w."Position" <= v_low
    union all
    select w.* from unnest(p_events) p (id)
    cross join lateral (select * from coordination."WriterEvent" w where w."Id" = p.id offset 0) w
    where w."FinishedAt" is null and w."Position" <= v_low) u
  left join coordination.decision d on d.event_id = u."Id"
  where u."RollbackReason" is null and (u."Mode" = 'replicate' or d.outcome is not null);
  update coordination."WriterEvent" e set "AppEventStatusId" = coordination._status(u.state), "FinishedAt" = coordination.now(), "IsPublished" = true
  from (values ('Committed', v_committed), ('Canceled', v_canceled)) u (state, ids)
  where e."Id" = any (u.ids);
  perform coordination._post_decisions('{}', v_finished);
end $$;
