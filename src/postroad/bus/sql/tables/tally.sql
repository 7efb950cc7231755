-- Counts of a consumer's messages, written by the sessions that handle them, each at most every few seconds; see mbus._tally.  Append-only;
-- maintenance moves rows older than a minute to mbus.traffic.
create table mbus.tally (
  consumer_id integer not null,
  at          timestamptz not null,
  kind        text not null constraint kind_is_known check (kind in ('posted', 'consumed', 'died', 'expired', 'rejected')),
  messages    bigint not null
);
create index tally_by_consumer_idx on mbus.tally (consumer_id, at);
create index tally_by_time_idx on mbus.tally (at);
