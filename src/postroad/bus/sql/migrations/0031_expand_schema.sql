-- breaks older: no
alter table mbus.queue add column if not exists schema jsonb;
-- the rest runs with the upgrade
-- Replaced by a function with one more argument, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean, interval, bigint, text);
