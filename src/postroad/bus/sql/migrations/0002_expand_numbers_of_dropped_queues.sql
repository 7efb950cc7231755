-- breaks older: no
create table mbus.dropped_queue (
  name     text primary key,
  position bigint not null
);
-- Replaced by functions with another signature.
drop function if exists mbus._take_number(integer, integer, bigint);
drop function if exists mbus._take_waiting(integer, integer, bigint);
drop function if exists mbus._check_holders(text[], bigint[]);
