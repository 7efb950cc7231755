-- Where messages arrive in this database from one bridge.
create table bridge.inlet (
  id         integer generated always as identity primary key,
  name       text not null,
  -- The node of the source, or the address of a broker without secrets: bridges of different sources may have one name.
  source     text not null,
  queue      text not null,
  -- The state of an inlet from a broker; an inlet from a database has the state of the outlet at the other end.
  state      text not null default 'running'
    constraint inlet_state_is_known check (state in ('running', 'paused', 'draining', 'drained')),
  problem    text,
  problem_at timestamptz,
  created_at timestamptz not null default clock_timestamp(),
  constraint inlet_is_unique unique (name, source)
);

-- Batches that came from a broker, written by the transaction that posted them.  Append-only; old rows are deleted by key.
--   position  of a stream: the offset up to which everything has arrived
--   waiting   how many messages the broker still had, if it was queried
create table bridge.arrived (
  id         bigint generated always as identity primary key,
  inlet_id   integer not null references bridge.inlet (id) on delete cascade,
  arrived_at timestamptz not null,
  posted     integer not null default 0,
  dropped    integer not null default 0,
  refused    integer not null default 0,
  position   bigint,
  waiting    bigint
);
create index arrived_by_inlet_idx on bridge.arrived (inlet_id, id);

-- Messages of a broker that the queue refuses.  They are kept until an operator deletes them.
create table bridge.refused (
  id         bigint generated always as identity primary key,
  inlet_id   integer not null references bridge.inlet (id) on delete cascade,
  refused_at timestamptz not null,
  message_id text,
  error      text not null,
  headers    text not null,
  body       bytea not null
);
