-- Messages that wait for others to be done (header consume_after).  They are not on the ring, so they do not slow down the messages there.
--   released_by  the transaction that put it on the ring; kept until maintenance cleans up, because that
--                transaction may still give a predecessor back
create table mbus.blocked (
  id          bigint generated always as identity primary key,
  queue_id    integer not null,
  number      bigint not null,
  due_at      timestamptz,
  if_lost     text not null constraint if_lost_is_known check (if_lost in ('release', 'dmq')),
  released_by xid8,
  added       timestamptz not null,
  expires     timestamptz,
  headers     hstore,
  properties  hstore,
  trail       jsonb,
  recipients  integer[],
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea
);
create index blocked_by_number_idx on mbus.blocked (queue_id, number);
create index blocked_is_over_idx on mbus.blocked (id) where released_by is not null;
create index blocked_expires_idx on mbus.blocked (queue_id, expires) where expires is not null;

-- The predecessors of a blocked message: one row per predecessor and consumer that has not handled it.
--   consumer_id  null: the predecessor's iid is reserved and it has not been posted
--   done_by      the transaction that handled it
create table mbus.wait (
  blocked_id  bigint not null references mbus.blocked (id) on delete cascade,
  queue_id    integer not null,
  number      bigint not null,
  consumer_id integer,
  done_by     xid8
);
create index wait_by_predecessor_idx on mbus.wait (queue_id, number);
create index wait_by_blocked_idx on mbus.wait (blocked_id);

-- Notes for maintenance: check this blocked message again, or all that wait for this predecessor.
-- Written when a transaction cannot determine whether it is the last one; append-only.
--   holders  open transactions, one of which may have posted or reserved a predecessor; checked when they have ended
create table mbus.nudge (
  id          bigint generated always as identity primary key,
  blocked_id  bigint,
  queue_id    integer,
  number      bigint,
  consumer_id integer,
  not_before  timestamptz,
  constraint nudge_names_one_thing check (blocked_id is null or queue_id is null),
  holders     text[]
);

-- Numbers reserved by get_iid and not posted yet: not done, although no message exists.
create table mbus.reserved (
  queue_id    integer not null,
  number      bigint not null,
  reserved_at timestamptz not null,
  primary key (queue_id, number)
);
create index reserved_long_ago_idx on mbus.reserved (reserved_at);
