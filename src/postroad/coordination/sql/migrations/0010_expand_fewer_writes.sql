-- breaks older: no
alter table coordination."AppEvent" drop constraint if exists "AppEvent_AppEventTypeId_fkey",
  drop constraint if exists "AppEvent_AppEventStatusId_fkey";
alter table coordination."WriterEvent" drop constraint if exists "WriterEvent_AppEventTypeId_fkey",
  drop constraint if exists "WriterEvent_AppEventStatusId_fkey";
alter table coordination."WriterEvent" add column "PublishedAt" timestamptz;
create table coordination.reader_progress (
  reader      text not null,
  finished_to bigint not null,
  after       bigint not null,
  at          timestamptz not null,
  primary key (reader, finished_to)
);
