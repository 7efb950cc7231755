-- Messages of queues with groups that a worker holds for longer than a transaction; those of other queues stay on the ring.
-- The token is new with each lease, so a holder whose lease has ended can no longer change the row: the token is a fencing token.
-- No foreign keys here, nor in delayed, blocked, reserved and dedup: each insert would lock the row of its queue, and
-- several concurrent sessions would turn that lock into a MultiXact.  mbus._delete_messages does what a cascade would.
-- All tokens are numbers drawn here * 2^18 + the place of the lease, see mbus._claims.
create sequence mbus.lease_token;
-- No lease has a smaller token, now or later.  Searches start here, because dead rows of ended leases remain while a session holds an old
-- snapshot.  Raised by maintenance.
create sequence mbus.lease_floor minvalue 0 start 0;
select setval('mbus.lease_floor', 0);
create table mbus.leased (
  token        bigint primary key default nextval('mbus.lease_token') * 262144 + 1023,
  queue_id     integer not null,
  consumer_id  integer not null,
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
create index leased_holds_group_idx on mbus.leased (consumer_id, group_name, token) where group_name is not null;
