-- The events of a file, in order.
create table intake.file_history (
  id      bigint generated always as identity primary key,
  file_id bigint not null references intake.imported_files (id) on delete cascade,
  at      timestamptz not null,
  status  text not null,
  note    text
);
create index file_history_by_file_idx on intake.file_history (file_id, id);
