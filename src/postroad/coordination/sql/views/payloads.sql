-- Payloads as the seed names them.  Their status is not stored per row: the event's cursor says it for all of them.
create or replace view coordination."AppEventPayload" as
select p.id as "Id", coalesce(e."IsPublished", s.event_id is not null) as "IsPublished", coalesce(e."Date", s.date) as "Date", p.event_id as "AppEventId",
  case when s.event_id is not null then case when s.vote is null then 2 else 3 end
       when e."AppEventStatusId" = 9 then 3 when e."IsPublished" then 4 else 1 end as "AppEventPayloadStatusId",
  p.after as "Content", p.sequence as "Sequence", t."Entity", t."Operation", p.type_id as "AppEventTypeId"
from coordination.payload p
join coordination."AppEventType" t on t."Id" = p.type_id
left join coordination."AppEvent" e on e."Id" = p.event_id
left join coordination.staging s on s.event_id = p.event_id;

-- The Coordinator's payloads: it keeps none, but knows how far each reader is with them.
create or replace view coordination."WriterEventPayload" as
select e."Id" as "WriterEventId", n as "Sequence", r.name as "Reader",
  case when r.finished_to >= e."Position" or x.vote is not null or x.state in ('Processed', 'Committed') then 3
       when n <= x.staged then 2 else 4 end as "AppEventPayloadStatusId"
from coordination."WriterEvent" e
cross join lateral generate_series(1, e."PayloadCount") n
cross join coordination.reader r
left join coordination.reader_event x on x.event_id = e."Id" and x.reader = r.name;
