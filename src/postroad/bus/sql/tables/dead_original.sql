-- Dead messages as they were before an operator edited and redrove them; kept until their consumer is dropped.
create table mbus.dead_original (
  id          bigint generated always as identity primary key,
  queue_id    integer not null references mbus.queue (id) on delete cascade,
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  number      bigint not null,
  edited_at   timestamptz not null,
  edited_by   text not null,
  died_at     timestamptz not null,
  error       text,
  properties  hstore,
  data        text
);
create index dead_original_by_number_idx on mbus.dead_original (queue_id, number);
create index dead_original_by_consumer_idx on mbus.dead_original (consumer_id);
