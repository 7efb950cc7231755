-- breaks older: no
alter table coordination."WriterEvent" add column "RollbackReason" text;
