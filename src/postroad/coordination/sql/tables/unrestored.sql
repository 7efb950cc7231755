-- Events that this Reader dropped and the Writer has not restored yet.  Until then, images of later changes may contain their values.
create table coordination.unrestored (
  event_id bigint primary key,
  entities text[] not null
);
