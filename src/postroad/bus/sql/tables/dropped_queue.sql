-- The last number of a dropped queue.  A new queue of the same name continues from it, because an iid is never issued twice: applications
-- store it as an idempotency key.
create table mbus.dropped_queue (
  name     text primary key,
  position bigint not null
);
