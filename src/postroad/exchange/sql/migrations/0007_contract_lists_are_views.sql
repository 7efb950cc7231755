-- breaks older: no
-- Lists are read from the views of views/lists.sql.
drop function if exists exchange.databases_shown(text, integer);
drop function if exists exchange.clients_shown(text, integer);
drop function if exists exchange.processes_shown(text, text, bigint, integer);
drop function if exists exchange.messages_shown(text, text, text, bigint, integer, text);
