-- breaks older: no
alter table mbus.queue add column if not exists track text;
-- the rest runs with the upgrade
-- Replaced by functions with more arguments, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean, interval, bigint);
drop function if exists mbus._create_payload_table(text, text);
