-- breaks older: no
alter table exchange.server add column runs text[] not null default '{}';
