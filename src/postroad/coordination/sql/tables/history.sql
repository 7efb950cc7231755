-- Append-only: the states of an event, with time and reader, as far as its own row does not show them.  One row per transaction, which may
-- pass several states.  The view event_history has one line for each state, including those of the event's row.
create table coordination.history (
  event_id bigint not null,
  reader   text,
  states   text[] not null,
  at       timestamptz not null default pg_catalog.clock_timestamp(),
  by       text not null,
  note     text
);
create index history_event_idx on coordination.history (event_id);
