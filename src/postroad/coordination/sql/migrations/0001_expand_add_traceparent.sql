-- breaks older: no
alter table coordination."AppEvent" add column "TraceParent" text;
alter table coordination.staging add column traceparent text;
