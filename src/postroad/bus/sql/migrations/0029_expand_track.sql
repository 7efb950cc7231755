-- breaks older: no
alter table mbus.queue add column track text;
-- Replaced by functions with more arguments, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean, interval, bigint);
drop function if exists mbus._create_payload_table(text, text);
