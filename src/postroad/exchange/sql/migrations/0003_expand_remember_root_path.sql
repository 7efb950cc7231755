-- breaks older: no
alter table exchange.server add column root_path text;
-- Created again with one more parameter, which has a default.
drop function if exists exchange.take_over(
  uuid, text, double precision, double precision, double precision, integer, text, interval);
