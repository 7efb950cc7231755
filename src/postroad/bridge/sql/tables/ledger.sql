-- Where messages were posted first, as seen from one queue of this database.
create table bridge.origin (
  id           integer generated always as identity primary key,
  queue        text not null,
  node         text not null,
  source_queue text not null,
  constraint origin_is_unique unique (queue, node, source_queue)
);

-- What has arrived: the numbers of the messages of one origin, as ranges.  One row per batch; rows whose batch is
-- confirmed are merged, and numbers that follow each other become one range.  Rows are looked up by key.
--   batch      set until the source's commit of that batch is recorded here
--   is_pinned  the source rolled that batch back after it had arrived, so its messages will be sent again: the row is kept
create table bridge.ledger (
  id         bigint generated always as identity primary key,
  origin_id  integer not null references bridge.origin (id) on delete cascade,
  first      bigint not null,
  last       bigint not null,
  numbers    int8multirange not null,
  inlet_id   integer not null references bridge.inlet (id) on delete cascade,
  batch      bigint,
  is_pinned  boolean not null default false,
  seen_at    timestamptz not null
);
create index ledger_by_number_idx on bridge.ledger (origin_id, last);
create index ledger_open_idx on bridge.ledger (inlet_id, batch) where batch is not null;
create index ledger_by_age_idx on bridge.ledger (seen_at) where batch is null;

-- Message ids of other senders, which are not iids.  Each is a row in the newer of two tables, which are emptied alternately.
create table bridge.foreign_0 (queue text not null, id text not null, primary key (queue, id));
create table bridge.foreign_1 (queue text not null, id text not null, primary key (queue, id));
-- How often a table was emptied (an even number means that foreign_0 is the newer one), and when, in seconds since 1970.
create sequence bridge.turns minvalue 0 start 0;
select setval('bridge.turns', 0);
create sequence bridge.turned_at minvalue 0 start 0;
select setval('bridge.turned_at', extract(epoch from clock_timestamp())::bigint);
