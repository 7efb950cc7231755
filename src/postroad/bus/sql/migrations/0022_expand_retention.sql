-- breaks older: no
alter table mbus.queue add column if not exists retain interval, add column if not exists retain_size bigint;
-- the rest runs with the upgrade
-- creates: tables/retained.sql
-- Replaced by a function with more arguments, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean);
