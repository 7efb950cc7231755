-- breaks older: no
create table mbus.dropped_queue (
  name     text primary key,
  position bigint not null
);
