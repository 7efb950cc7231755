-- breaks older: no
alter table intake.imported_files add column traceparent text default nullif(current_setting('postroad.traceparent', true), '');
