-- breaks older: no
alter table exchange.server add column second_root_id uuid, add column second_root_path text,
  add column is_migrating boolean not null default false;
alter table exchange.member add column if not exists root_id uuid, add column if not exists second_root_id uuid;
update exchange.member m set root_id = s.root_id from exchange.server s;
-- Created again with two more parameters, which have defaults.
drop function if exists exchange.take_over(uuid, text, double precision, double precision, double precision, integer, text, interval, text);
