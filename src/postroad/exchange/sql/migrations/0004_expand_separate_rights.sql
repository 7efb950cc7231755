-- breaks older: no
alter table exchange.client add column may_send boolean not null default true;
alter table exchange.client add column may_take boolean not null default true;
-- Created again: with more parameters, which have defaults; with more columns.
drop function if exists exchange.add_client(text, text, boolean, text[], text[]);
drop function if exists exchange.clients_shown(text, integer);
