-- breaks older: no
create index message_by_id_idx on exchange.message (id);
create index message_by_file_name_idx on exchange.message (file_name);
create index message_by_trace_idx on exchange.message (substr(traceparent, 4, 32)) where traceparent is not null;
