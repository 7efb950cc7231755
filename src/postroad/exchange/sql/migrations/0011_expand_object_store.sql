-- breaks older: no
alter table exchange.message add column object text;
create unique index object_is_one_messages_idx on exchange.message (object) where object is not null;
