-- Where messages leave this database: a consumer of a queue that a bridge empties.
--   running ⇄ paused; running → draining → drained (its consumer is empty) → running
create table bridge.outlet (
  id         integer generated always as identity primary key,
  name       text not null constraint outlet_name_is_unique unique,
  queue      text not null,
  consumer   text not null,
  target     text not null,
  state      text not null default 'running'
    constraint outlet_state_is_known check (state in ('running', 'paused', 'draining', 'drained')),
  problem    text,
  problem_at timestamptz,
  created_at timestamptz not null default clock_timestamp()
);

-- The batches that left, one row each, written by the transaction that consumed them: a row means committed.
-- Append-only; old rows are deleted by key.  Rates are read from it.
create table bridge.sent (
  outlet_id integer not null references bridge.outlet (id) on delete cascade,
  batch     bigint not null,
  sent_at   timestamptz not null,
  messages  integer not null,
  looped    integer not null,
  primary key (outlet_id, batch)
);

-- Numbers of batches.  A sequence: a batch that is rolled back leaves a gap.
create sequence bridge.batch;
