-- Payloads as the seed names them.  Their status is not stored per row: it follows from the state of the event.
create or replace view coordination."AppEventPayload" as
select p.id as "Id", coalesce(e."IsPublished", s.event_id is not null) as "IsPublished", coalesce(e."Date", s.date) as "Date", p.event_id as "AppEventId",
  coordination._payload_status(case when s.vote is not null or s.event_id is null and e."AppEventStatusId" = coordination._status('Committed') then 'Processed'
    when s.event_id is not null then 'Prepared' when e."IsPublished" then 'Saved' else 'Created' end) as "AppEventPayloadStatusId",
  p.after as "Content", p.sequence as "Sequence", t."Entity", t."Operation", p.type_id as "AppEventTypeId"
from coordination.payload_row p
join coordination."AppEventType" t on t."Id" = p.type_id
left join coordination."AppEvent" e on e."Id" = p.event_id
left join coordination.staging s on s.event_id = p.event_id;

-- The payloads of the Coordinator's events: it stores none, only the progress of each reader.
create or replace view coordination."WriterEventPayload" as
select e."Id" as "WriterEventId", n as "Sequence", r.name as "Reader",
  coordination._payload_status(case when r.finished_to >= e."Position" or x.vote is not null or x.state in ('Processed', 'Committed')
    then 'Processed' when n <= x.staged then 'Prepared' else 'Saved' end) as "AppEventPayloadStatusId"
from coordination."WriterEvent" e
cross join lateral generate_series(1, e."PayloadCount") n
cross join coordination.reader r
left join coordination.reader_event x on x.event_id = e."Id" and x.reader = r.name;
