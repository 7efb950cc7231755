-- breaks older: no
-- creates: tables/replay.sql
-- Replaced by a function with more arguments, which the same calls reach.
drop function if exists mbus.create_consumer(text, text, text, boolean);
