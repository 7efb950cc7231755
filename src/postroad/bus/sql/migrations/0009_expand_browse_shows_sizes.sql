-- breaks older: no
-- Replaced by functions that return more columns.
drop function if exists mbus.dead_reasons(text);
drop function if exists mbus.browse(text, text, text, bigint, boolean, integer, text, integer);
