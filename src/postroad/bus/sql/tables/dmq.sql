-- Dead messages: given up after the last attempt, parked by a handler, or with a selector that
-- raised.  They keep their iid and wait for redrive or take.
--   fingerprint  the same for messages that died of the same error, see mbus._fingerprint
create table mbus.dmq (
  id          bigint generated always as identity primary key,
  queue_id    integer not null references mbus.queue (id) on delete cascade,
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  died_at     timestamptz not null,
  error       text,
  number      bigint not null,
  added       timestamptz not null,
  expires     timestamptz,
  headers     hstore,
  properties  hstore,
  trail       jsonb,
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea,
  fingerprint text
);
create index dmq_by_number_idx on mbus.dmq (queue_id, number);
create index dmq_by_consumer_idx on mbus.dmq (consumer_id, id);
create index dmq_by_fingerprint_idx on mbus.dmq (consumer_id, fingerprint, id) include (died_at);
