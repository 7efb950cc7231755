-- A process: one hand-over to an instance of an ERP.
--   STARTED -> READY_TO_COMMIT -> CLEANUP -> DONE;  CLEANUP <-> FAILED while its files cannot be moved
--   STARTED -> CANCELLED | ABORTED;  READY_TO_COMMIT -> UNKNOWN -> CLEANUP | ABORTED;  READY_TO_COMMIT -> ABORTED
create table exchange.process (
  id           text primary key default gen_random_uuid()::text,
  number       bigint generated always as identity,
  database_id  text not null references exchange.database (id),
  recipient    text not null,
  client_id    text not null,
  attempt      text not null,
  state        text not null default 'STARTED' constraint process_state_is_known check (state in (
                 'STARTED', 'READY_TO_COMMIT', 'UNKNOWN', 'CLEANUP', 'FAILED', 'DONE', 'ABORTED', 'CANCELLED')),
  outcome      text constraint outcome_is_known check (outcome in ('COMMITTED', 'ABORTED')),
  started_at   timestamptz not null,
  ready_at     timestamptz,
  ended_at     timestamptz,
  expires_at   timestamptz,
  deadline     double precision,
  marker_seq   bigint,
  has_marker   boolean not null default false,
  manifest     text,
  error        text,
  tries        integer not null default 0,
  -- The trace of the request that began it, later of the one that committed it; automatic follow-up work belongs to it.
  traceparent  text default nullif(current_setting('postroad.traceparent', true), '')
) with (fillfactor = 70);
create unique index process_attempt_is_one_clients_idx on exchange.process (client_id, attempt);
create unique index database_has_one_process_idx on exchange.process (database_id)
  where state in ('STARTED', 'READY_TO_COMMIT');
create unique index recipient_has_one_process_idx on exchange.process (recipient)
  where state in ('STARTED', 'READY_TO_COMMIT');
create index process_open_idx on exchange.process (database_id, state)
  where state in ('STARTED', 'READY_TO_COMMIT', 'UNKNOWN', 'CLEANUP', 'FAILED');
create unique index process_listed_idx on exchange.process (number);
create index process_ended_idx on exchange.process (ended_at) where ended_at is not null;
