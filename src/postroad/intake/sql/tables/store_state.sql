-- How each store stands: while it fails nobody begins a transfer to it, but for one probe at a time.
create table intake.store_state (
  store    text primary key,
  failures integer not null default 0,
  problem  text,
  retry_at timestamptz,
  updated_at timestamptz not null default clock_timestamp()
);
