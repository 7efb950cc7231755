-- breaks older: no
-- A server of the version before serves alone: its lock keeps others out, and theirs keep it out.
create table exchange.member (
  epoch      bigint primary key,
  holder     text not null,
  started_at timestamptz not null default clock_timestamp(),
  seen_at    timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
insert into exchange.member (epoch, holder) select s.epoch, coalesce(s.holder, '') from exchange.server s where s.epoch > 0;
alter table exchange.server add column sweeper bigint;
