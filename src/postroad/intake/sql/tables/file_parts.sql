-- The parts of an upload that the store has; a resumed transfer does not fetch them again.
create table intake.file_parts (
  file_id bigint not null references intake.imported_files (id) on delete cascade,
  number  integer not null constraint part_numbers_begin_at_1 check (number >= 1),
  size    bigint not null,
  etag    text not null,
  sha256  bytea not null,
  stored_at timestamptz not null default clock_timestamp(),
  primary key (file_id, number)
);
