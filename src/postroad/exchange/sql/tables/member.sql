-- The servers that run.  Each holds a lock of its own on a session of its own (exchange.hold); one whose lock is free has ended.
create table exchange.member (
  epoch      bigint primary key,
  holder     text not null,
  started_at timestamptz not null default clock_timestamp(),
  seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
