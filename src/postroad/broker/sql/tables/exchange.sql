-- An exchange: direct, topic or fanout.
create table broker.exchange (
  id   integer generated always as identity primary key,
  name text not null,
  kind text not null constraint exchange_kind_is_known check (kind in ('direct', 'topic', 'fanout')),
  constraint exchange_name_is_unique exclude using hash (name with =)
);

-- A binding of a queue to an exchange.
--   pattern  of a topic binding: a regular expression over routing keys
create table broker.binding (
  exchange_id integer not null references broker.exchange (id) on delete cascade,
  queue_id    integer not null references broker.queue (id) on delete cascade,
  routing_key text not null,
  pattern     text,
  constraint binding_is_unique exclude using hash ((exchange_id::text || ' ' || queue_id::text || ' ' || routing_key) with =)
);
create index binding_by_key_idx on broker.binding using hash (routing_key);
create index binding_by_exchange_idx on broker.binding (exchange_id);
create index binding_by_queue_idx on broker.binding (queue_id);
