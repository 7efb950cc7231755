-- breaks older: no
alter table mbus.queue add column schema jsonb;
-- Replaced by a function with one more argument, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean, interval, bigint, text);
