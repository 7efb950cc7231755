-- breaks older: no
alter table exchange.message add column traceparent text default nullif(current_setting('postroad.traceparent', true), '');
alter table exchange.process add column traceparent text default nullif(current_setting('postroad.traceparent', true), '');
