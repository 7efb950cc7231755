-- The history with one line for each state.
create or replace view coordination.event_history as
select h.event_id, h.reader, s.state, h.at, h.by, h.note, s.place
from coordination.history h cross join lateral unnest(h.states) with ordinality s (state, place);

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
