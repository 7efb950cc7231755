-- Keys given by producers: a second post with the same key inside the window gets the first iid.
create table mbus.dedup (
  queue_id integer not null,
  key      text not null,
  number   bigint not null,
  until    timestamptz not null,
  constraint key_is_unique_in_its_queue primary key (queue_id, key)
);
create index dedup_ends_idx on mbus.dedup (until);
