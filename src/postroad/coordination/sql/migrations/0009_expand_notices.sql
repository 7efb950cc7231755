-- breaks older: no
create sequence coordination.publisher_waits;
