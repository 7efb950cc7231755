-- The recorded plan: a file that may not be in the folder of its message yet.
--   source     the folder in which it was last known to lie
--   temporary  the name under which it was written, as long as it may still have it
--   version    grows with each decision about the file: an older plan that was read before is not followed after it
-- Written in the transaction that decides, removed when the file is in place.  Doing it again is harmless.
create sequence exchange.move_version;
create table exchange.move (
  number     bigint primary key,
  source     text,
  temporary  text,
  version    bigint not null default nextval('exchange.move_version'),
  planned_at timestamptz not null default clock_timestamp()
);
