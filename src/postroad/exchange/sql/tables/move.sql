-- The recorded plan: a file that may not yet lie where its message says it belongs.
--   source     the folder in which it was last known to lie
--   temporary  the name under which it was written, as long as it may still have it
-- Written in the transaction that decides, removed when the file is in place.  Doing it again is harmless.
create table exchange.move (
  number    bigint primary key,
  source    text,
  temporary text,
  planned_at timestamptz not null default clock_timestamp()
);
