-- breaks older: no
-- A server of the version before serves alone: its lock keeps others out, and theirs keep it out.
-- creates: tables/member.sql
insert into exchange.member (epoch, holder) select s.epoch, coalesce(s.holder, '') from exchange.server s where s.epoch > 0;
alter table exchange.server add column sweeper bigint;
