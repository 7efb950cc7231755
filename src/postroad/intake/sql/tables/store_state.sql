-- The status of each store: while it fails, one transfer at a time is tried.
create table intake.store_state (
  store    text primary key,
  failures integer not null default 0,
  problem  text,
  retry_at timestamptz,
  updated_at timestamptz not null default clock_timestamp()
);
