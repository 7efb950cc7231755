-- breaks older: no
create index imported_files_by_name_idx on intake.imported_files (filename);
create index imported_files_by_trace_idx on intake.imported_files (substr(traceparent, 4, 32)) where traceparent is not null;
