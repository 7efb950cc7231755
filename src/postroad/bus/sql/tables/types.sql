-- The row types of the public functions.  One set per payload type, because a composite type
-- cannot leave the type of `data` open.
create type mbus.qt_model as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data hstore);
create type mbus.qt_model_jsonb as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data jsonb);
create type mbus.qt_model_text as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data text);
create type mbus.qt_model_bytea as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data bytea);

create type mbus.lease_model as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data hstore,
  token bigint, attempt integer, leased_until timestamptz);
create type mbus.lease_model_jsonb as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data jsonb,
  token bigint, attempt integer, leased_until timestamptz);
create type mbus.lease_model_text as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data text,
  token bigint, attempt integer, leased_until timestamptz);
create type mbus.lease_model_bytea as (
  id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz,
  received integer[], headers hstore, properties hstore, data bytea,
  token bigint, attempt integer, leased_until timestamptz);

-- A message outside a queue's own tables: being posted, delayed, leased or dead.  Exactly one of
-- the four data columns is used, the one of the queue's payload.
--   number      the message's number in its queue, null until it has one
--   recipients  consumers that get it; null means all
--   trail       its history: attempts, failures, delayed_until; null if there is none
create type mbus.parcel as (
  number bigint, added timestamptz, expires timestamptz, headers hstore, properties hstore,
  trail jsonb, recipients integer[],
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea);
