-- The running servers.  Each holds a lock in a separate session (exchange.hold); a server whose lock is free has ended.
create table exchange.member (
  epoch      bigint primary key,
  holder     text not null,
  started_at timestamptz not null default clock_timestamp(),
  seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
