-- breaks older: no
create table mbus.worker (
  id          text primary key,
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  host        text not null,
  pid         integer not null,
  mode        text not null,
  concurrency integer not null,
  started_at  timestamptz not null,
  seen_at     timestamptz not null,
  held        jsonb not null
);
create index worker_by_consumer_idx on mbus.worker (consumer_id);
