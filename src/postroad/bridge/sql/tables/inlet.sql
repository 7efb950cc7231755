-- Where messages arrive in this database from one bridge.
create table bridge.inlet (
  id         integer generated always as identity primary key,
  name       text not null,
  -- The node of the source, or the address of a broker without secrets: a bridge of the same name elsewhere is another.
  source     text not null,
  queue      text not null,
  created_at timestamptz not null default clock_timestamp(),
  constraint inlet_is_unique unique (name, source)
);
