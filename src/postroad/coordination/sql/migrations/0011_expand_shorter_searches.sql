-- breaks older: no
drop function if exists coordination._conclude();
create index "WriterEvent_rollback_idx" on coordination."WriterEvent" ("Position") where "RollbackReason" is not null;
