-- A queue of Celery and its queue on the bus.
--   name           of any length and characters
--   bus_name       the bus queue of messages without priority; the temporary queue, if it is one
--   levels         the priorities that have a separate bus queue, <bus_name>_<level>
--   message_ttl    x-message-ttl: a message expires after this time
--   expires_after  x-expires: the queue is deleted when it was not used for this time
--   used_at        when it was last declared or consumed from; kept for queues with expires_after
create table broker.queue (
  id            integer generated always as identity primary key,
  name          text not null,
  bus_name      text not null,
  is_temporary  boolean not null,
  levels        smallint[] not null default '{}',
  message_ttl   interval,
  expires_after interval,
  used_at       timestamptz not null default clock_timestamp(),
  created_at    timestamptz not null default clock_timestamp(),
  -- By hash, because the entries of other indexes have a maximum size and a name has none.
  constraint queue_name_is_unique exclude using hash (name with =)
);
create unique index queue_bus_name_idx on broker.queue (bus_name);
create index queue_unused_idx on broker.queue (used_at) where expires_after is not null;
