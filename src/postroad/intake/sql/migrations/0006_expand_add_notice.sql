-- breaks older: no
alter table intake.imported_files add column notice text;
