-- breaks older: no
-- Created again with one more parameter, which has a default.
drop function if exists exchange.end_process(bigint, double precision, text, text, text, text, text);
drop function if exists exchange._commit(exchange.process, double precision, text);
