-- Messages in the hands of a worker for longer than a transaction.  The token is drawn anew for each
-- lease, so a holder whose lease has ended has no key to the row any more: that is the fence.
create sequence mbus.lease_token;
create table mbus.leased (
  token        bigint primary key default nextval('mbus.lease_token'),
  queue_id     integer not null references mbus.queue (id) on delete cascade,
  consumer_id  integer not null references mbus.consumer (id) on delete cascade,
  group_name   text,
  leased_until timestamptz not null,
  number       bigint not null,
  added        timestamptz not null,
  expires      timestamptz,
  headers      hstore,
  properties   hstore,
  trail        jsonb,
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea
);
create index leased_ends_idx on mbus.leased (queue_id, leased_until);
create index leased_by_number_idx on mbus.leased (queue_id, number);
create index leased_holds_group_idx on mbus.leased (consumer_id, group_name) where group_name is not null;
