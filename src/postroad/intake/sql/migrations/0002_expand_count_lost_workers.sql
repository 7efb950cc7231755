-- breaks older: no
alter table intake.imported_files add column lost_workers integer not null default 0;
