-- breaks older: no
alter table mbus.tally drop constraint kind_is_known;
alter table mbus.tally add constraint kind_is_known check (kind in ('posted', 'consumed', 'died', 'expired', 'rejected'));
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
