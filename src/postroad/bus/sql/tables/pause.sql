-- A consumer, or a whole queue (no consumer), that takes nothing until it is resumed.
create table mbus.pause (
  queue_id    integer not null references mbus.queue (id) on delete cascade,
  consumer_id integer references mbus.consumer (id) on delete cascade,
  paused_at   timestamptz not null,
  paused_by   text not null,
  reason      text,
  constraint pause_is_unique unique nulls not distinct (queue_id, consumer_id)
);
create index pause_by_consumer_idx on mbus.pause (consumer_id);
