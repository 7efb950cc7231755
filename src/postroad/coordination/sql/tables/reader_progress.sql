-- When a reader finished the events after one position up to another.
create table coordination.reader_progress (
  reader      text not null,
  finished_to bigint not null,
  after       bigint not null,
  at          timestamptz not null,
  primary key (reader, finished_to)
);
