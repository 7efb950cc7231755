-- A closed segment of a queue that retains its messages: the table qr$<id>, which was a slot of the ring until every consumer had consumed
-- its messages.  Read by mbus.history and mbus.replay, dropped as a whole by maintenance.
--   queue_id     null once the queue is dropped; maintenance drops the segment
--   first_at, last_at  the times of posting that it covers
create table mbus.retained (
  id          bigint generated always as identity primary key,
  queue_id    integer references mbus.queue (id) on delete set null,
  messages    bigint not null,
  bytes       bigint not null,
  first_id    bigint not null,
  last_id     bigint not null,
  first_at    timestamptz not null,
  last_at     timestamptz not null,
  retained_at timestamptz not null
);
create index retained_by_queue_idx on mbus.retained (queue_id, first_id);
