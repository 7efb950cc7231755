-- The last number of a queue that is gone.  A new queue of the same name continues from there, because an iid is
-- never given twice: others keep it as the key of what they have done.
create table mbus.dropped_queue (
  name     text primary key,
  position bigint not null
);
