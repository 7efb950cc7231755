-- breaks older: no
alter table intake.imported_files add column same_as bigint references intake.imported_files (id) on delete cascade;
create index imported_files_same_as_idx on intake.imported_files (same_as) where same_as is not null;
