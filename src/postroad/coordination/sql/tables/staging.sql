-- The tables of a Reader: its cursor, staged events, and decisions that arrived before their events.
create table coordination.progress (
  is_only     boolean primary key default true check (is_only),
  position    bigint not null default 0,
  -- The number of staged payloads of the event after that position.
  sequence    integer not null default 0,
  -- Events that a snapshot contained before they had a position.
  included    bigint[] not null default '{}',
  has_snapshot boolean not null default false,
  wait        text not null default 'entity',
  max_attempts integer not null default 5,
  has_checks  boolean not null default false,
  -- Entities of the Writer that this Reader ignores.
  ignored     text[] not null default '{}',
  -- The Writer's columns by entity, as its last page named them.
  columns     jsonb not null default '{}',
  -- The last report to the Coordinator, and the position that it named.
  reported_at timestamptz not null default pg_catalog.clock_timestamp(),
  reported_to bigint not null default -1,
  -- The number of snapshots taken; reports from before the last one are ignored.
  generation  integer not null default 0,
  -- Whether the Coordinator had removed this Reader.
  needs_snapshot boolean not null default false,
  constraint wait_is_known check (wait in ('entity', 'all'))
);

create table coordination.staging (
  event_id     bigint primary key,
  position     bigint not null constraint staged_once unique,
  count        integer not null,
  staged       integer not null default 0,
  mode         text not null,
  entities     text[] not null,
  type_name    text not null,
  date         timestamptz not null,
  correlation_id uuid not null,
  cancels      bigint,
  outcome      text,
  vote         text,
  reason       text,
  attempts     integer not null default 0,
  next_try_at  timestamptz,
  parked_at    timestamptz,
  entered_at   timestamptz not null default pg_catalog.clock_timestamp(),
  traceparent  text,
  constraint outcome_is_known check (outcome in ('commit', 'cancel')),
  constraint vote_is_known check (vote in ('yes', 'no'))
);
-- The order of each entity: an event waits until it is the first of all its entities.
create table coordination.waiting (
  entity   text not null,
  position bigint not null,
  event_id bigint not null references coordination.staging on delete cascade,
  primary key (entity, position)
);
create index waiting_event_idx on coordination.waiting (event_id);
-- Decisions about events that have not been pulled yet.
create table coordination.early_decision (
  event_id bigint primary key,
  outcome  text not null,
  at       timestamptz not null default pg_catalog.clock_timestamp()
);
