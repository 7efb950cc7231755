-- breaks older: no
alter table mbus.sample drop column ready;
create table mbus.tally (
  consumer_id integer not null,
  at          timestamptz not null,
  kind        text not null constraint kind_is_known check (kind in ('consumed', 'died', 'expired', 'rejected')),
  messages    bigint not null
);
create index tally_by_consumer_idx on mbus.tally (consumer_id, at);
create index tally_by_time_idx on mbus.tally (at);
-- Replaced by functions with another signature.
drop function if exists mbus.purge(text, text, text, integer);
drop view if exists mbus.status;
drop function if exists mbus._rates(mbus.consumer);
