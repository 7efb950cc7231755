-- Counts of a consumer's messages per minute, and after a day per quarter of an hour; no row means that nothing happened.
-- Filled from mbus.tally, see mbus._record_traffic; deleted after eight days.
--   rejected  failed attempts after which the message is tried again
--   waiting   messages that were not handled yet, and dead ones: recorded every five minutes while there is traffic
create table mbus.traffic (
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  since       timestamptz not null,
  posted      bigint not null default 0,
  consumed    bigint not null default 0,
  rejected    bigint not null default 0,
  died        bigint not null default 0,
  expired     bigint not null default 0,
  waiting     bigint,
  dead        bigint,
  primary key (consumer_id, since)
);
create index traffic_by_time_idx on mbus.traffic (since);
