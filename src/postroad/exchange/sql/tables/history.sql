-- The states of a process: when, and by which actor.
create table exchange.history (
  process_id text not null references exchange.process (id) on delete cascade,
  number     bigint generated always as identity,
  state      text not null,
  at         timestamptz not null,
  actor      text,
  note       text,
  primary key (process_id, number)
);
