-- Keys given by producers: a second post with the same key inside the window returns the first iid.
--   segment  which of the three tables it is in.  Keys are not deleted one by one: a table is truncated when the windows of all its
--            keys have ended, so no dead rows remain while a session holds an old snapshot
-- The sequence encodes the two tables that a post writes a key to (one * 3 + the other).  They are the same except while another table is
-- opened, see mbus._rotate_dedup.
create sequence mbus.dedup_tail minvalue 0 start 0;
select setval('mbus.dedup_tail', 0);
create table mbus.dedup (
  queue_id integer not null,
  key      text not null,
  number   bigint not null,
  until    timestamptz not null,
  segment  integer not null default 0,
  constraint key_is_unique_in_its_queue primary key (queue_id, key, segment)
) partition by list (segment);
create table mbus.dedup_0 partition of mbus.dedup for values in (0);
create table mbus.dedup_1 partition of mbus.dedup for values in (1);
create table mbus.dedup_2 partition of mbus.dedup for values in (2);
create index dedup_ends_idx on mbus.dedup (until);
