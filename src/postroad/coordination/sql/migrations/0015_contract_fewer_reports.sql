-- breaks older: no
alter table coordination.progress drop column if exists told_at;
