-- breaks older: no
alter table coordination."AppEvent" drop constraint if exists "AppEvent_AppEventTypeId_fkey",
  drop constraint if exists "AppEvent_AppEventStatusId_fkey";
alter table coordination."WriterEvent" drop constraint if exists "WriterEvent_AppEventTypeId_fkey",
  drop constraint if exists "WriterEvent_AppEventStatusId_fkey";
alter table coordination."WriterEvent" add column "PublishedAt" timestamptz;
-- creates: tables/reader_progress.sql
