-- The handlers of running workers, as they last reported; a handler that stops deletes its row.
--   held  the messages that it has leased, at most 1,000, with the time of the report in which each appeared
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
