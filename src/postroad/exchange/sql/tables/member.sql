-- The running servers.  Each holds a lock in a separate session (exchange.hold); a server whose lock is free has ended.  It writes to the root, and reads the second root, too.
create table exchange.member (
  epoch      bigint primary key,
  holder     text not null,
  started_at timestamptz not null default clock_timestamp(),
  seen_at    timestamptz not null default clock_timestamp(),
  root_id        uuid,
  second_root_id uuid
) with (fillfactor = 50);
