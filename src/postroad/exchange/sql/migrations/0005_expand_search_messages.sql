-- breaks older: no
-- Replaced by a function with one more parameter.
drop function if exists exchange.messages_shown(text, text, text, bigint, integer);
