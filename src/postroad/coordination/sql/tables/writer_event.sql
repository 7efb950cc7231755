-- The tables of the Coordinator: the Writer's events, the readers, their reports, and the decisions.
create table coordination."WriterEvent" (
  "Id"               bigint primary key,
  "IsPublished"      boolean not null default false,
  "Date"             timestamptz not null,
  "CorrelationId"    uuid not null,
  "AppEventTypeId"   integer not null,
  "AppEventStatusId" integer not null,
  "Mode"             text not null,
  "Position"         bigint not null constraint position_belongs_to_one_event unique,
  "PayloadCount"     integer not null,
  "Entities"         text[] not null,
  "Cancels"          bigint,
  "Deadline"         timestamptz,
  "ReceivedAt"       timestamptz not null default pg_catalog.clock_timestamp(),
  "FinishedAt"       timestamptz,
  -- Why the Writer has not restored a cancelled event; until then the event is Canceling.
  "RollbackReason"   text,
  "PublishedAt"      timestamptz
);
create index "WriterEvent_unfinished_idx" on coordination."WriterEvent" ("Position") where "FinishedAt" is null;
create index "WriterEvent_finished_idx" on coordination."WriterEvent" ("FinishedAt") where "FinishedAt" is not null;
create index "WriterEvent_deadline_idx" on coordination."WriterEvent" ("Deadline")
  where "FinishedAt" is null and "Deadline" is not null;
create index "WriterEvent_rollback_idx" on coordination."WriterEvent" ("Position") where "RollbackReason" is not null;

create table coordination.reader (
  name        text primary key,
  is_voter    boolean not null default true,
  -- Everything up to this position is finished at the reader: one number acknowledges all events.
  finished_to bigint not null default 0,
  joined_at   timestamptz not null default pg_catalog.clock_timestamp(),
  heard_at    timestamptz not null default pg_catalog.clock_timestamp(),
  asked_at    timestamptz,
  -- The number of snapshots that the reader has taken, as last reported.
  generation  integer not null default 0
);

-- The reports of a reader about single events: its vote, or that the event waits or is parked.
create table coordination.reader_event (
  event_id bigint not null,
  reader   text not null references coordination.reader on delete cascade,
  state    text not null,
  staged   integer not null default 0,
  vote     text,
  reason   text,
  attempts integer not null default 0,
  is_parked boolean not null default false,
  at       timestamptz not null default pg_catalog.clock_timestamp(),
  primary key (event_id, reader)
);
create index reader_event_parked_idx on coordination.reader_event (reader) where is_parked;

-- The decision about an event.  No row: not committed; at the deadline it is cancelled.
create table coordination.decision (
  event_id bigint primary key,
  outcome  text not null,
  reason   text,
  at       timestamptz not null default pg_catalog.clock_timestamp(),
  constraint decision_is_known check (outcome in ('commit', 'cancel'))
);
