-- The history with one line for each state. States that every event passes are not stored: their times are in the rows of events and in
-- readers' progress.
create or replace view coordination.event_history as
select h.event_id, h.reader, s.state, h.at, h.by, h.note, s.place
from coordination.history h cross join lateral unnest(h.states) with ordinality s (state, place)
union all
select d.event_id, d.reader, s.state, d.at, d.by, null, s.place
from (
  select e."Id" as event_id, null as reader, v.states, v.at, 'writer' as by
  from coordination."AppEvent" e
  cross join lateral (values ('{Created}'::text[], e."Date"), ('{Saving}', e."PublishedAt"),
    ('{Committed}', case when e."AppEventStatusId" = coordination._status('Committed') then e."FinishedAt" end)) v (states, at)
  where e."Number" is null
  union all
  select e."Id", n.name, '{Preparing,Prepared,Processing,Processed,Committing,Committed}', e."FinishedAt", 'reader'
  from coordination."AppEvent" e join coordination.node n on n.role = 'reader'
  where e."AppEventStatusId" = coordination._status('Committed')
  union all
  select e."Id", null, v.states, v.at, v.by
  from coordination."WriterEvent" e
  cross join lateral (values ('{Created}'::text[], e."Date", 'writer'), ('{Saving}', e."PublishedAt", 'writer'),
    ('{Saved,Activated}', e."ReceivedAt", 'coordinator'),
    (array[coordination._status_name(e."AppEventStatusId")], e."FinishedAt", 'coordinator')) v (states, at, by)
  -- A Writer or a Reader in the same database has the times.
  where v.by = 'coordinator' or not exists (select from coordination."AppEvent" a where a."Id" = e."Id" and a."Number" is null)
  union all
  select e."Id", r.name, '{Preparing,Prepared,Processing,Processed,Committing,Committed}', p.at, 'reader'
  from coordination."WriterEvent" e
  cross join coordination.reader r
  cross join lateral (
    select * from coordination.reader_progress p where p.reader = r.name and p.finished_to >= e."Position" order by p.finished_to limit 1) p
  where e."Mode" = 'replicate' and p.after < e."Position"
    and not exists (select from coordination.reader_event x where x.event_id = e."Id" and x.reader = r.name)
    and not exists (
      select from coordination."AppEvent" a join coordination.node n on n.role = 'reader' and n.name = r.name where a."Id" = e."Id")) d
cross join lateral unnest(d.states) with ordinality s (state, place)
where d.at is not null and not exists (
  select from coordination.history h
  where h.event_id = d.event_id and h.by = d.by and h.reader is not distinct from d.reader and s.state = any (h.states));

-- The Coordinator's events, and their state at each reader.
create or replace view coordination.events as
select e."Id" as event_id, e."Position" as position, coordination._status_name(e."AppEventStatusId") as state, e."Mode" as mode,
  t."Name" as type, e."Entities" as entities, e."PayloadCount" as payloads, e."Date" as created_at, e."FinishedAt" as finished_at,
  e."Deadline" as deadline, e."CorrelationId" as correlation_id, e."Cancels" as cancels, d.outcome,
  coalesce(e."RollbackReason", d.reason) as reason, d.at as decided_at
from coordination."WriterEvent" e
join coordination."AppEventType" t on t."Id" = e."AppEventTypeId"
left join coordination.decision d on d.event_id = e."Id";

create or replace view coordination.event_readers as
select e."Id" as event_id, r.name as reader,
  case when x.state in ('Committed', 'Canceled') then x.state
       when r.finished_to >= e."Position" then case when d.outcome = 'cancel' then 'Canceled' else 'Committed' end
       else coalesce(x.state, 'Activated') end as state,
  case when r.finished_to >= e."Position" then e."PayloadCount" else coalesce(x.staged, 0) end as staged,
  e."PayloadCount" as payloads, x.vote, x.reason, coalesce(x.attempts, 0) as attempts, coalesce(x.is_parked, false) as is_parked,
  coalesce(x.at, r.heard_at) as at
from coordination."WriterEvent" e
cross join coordination.reader r
left join coordination.reader_event x on x.event_id = e."Id" and x.reader = r.name
left join coordination.decision d on d.event_id = e."Id";
