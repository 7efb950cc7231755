-- The time when a reader finished the events between two positions.
create table coordination.reader_progress (
  reader      text not null,
  finished_to bigint not null,
  after       bigint not null,
  at          timestamptz not null,
  primary key (reader, finished_to)
);
