-- breaks older: no
alter table mbus.queue add column retain interval, add column retain_size bigint;
-- creates: tables/retained.sql
-- Replaced by a function with more arguments, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean);
