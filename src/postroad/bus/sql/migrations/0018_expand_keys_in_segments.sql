-- breaks older: no
-- The table of deduplication keys becomes the first of three.
alter table mbus.dedup rename to dedup_0;
create sequence mbus.dedup_tail minvalue 0 start 0;
select setval('mbus.dedup_tail', 0);
alter table mbus.dedup_0 add column segment integer constraint dedup_segment_not_null not null default 0;
alter table mbus.dedup_0 drop constraint key_is_unique_in_its_queue;
alter table mbus.dedup_0 add constraint dedup_0_pkey primary key (queue_id, key, segment);
alter index mbus.dedup_ends_idx rename to dedup_0_until_idx;
create table mbus.dedup (
  like mbus.dedup_0 including defaults,
  constraint key_is_unique_in_its_queue primary key (queue_id, key, segment)
) partition by list (segment);
alter table mbus.dedup attach partition mbus.dedup_0 for values in (0);
create table mbus.dedup_1 partition of mbus.dedup for values in (1);
create table mbus.dedup_2 partition of mbus.dedup for values in (2);
create index dedup_ends_idx on mbus.dedup (until);
drop function if exists mbus._forget_keys(timestamptz, timestamptz, integer);
