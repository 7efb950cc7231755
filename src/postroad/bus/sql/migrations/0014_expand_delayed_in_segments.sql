-- breaks older: no
-- The table of delayed messages becomes the first of three.
alter table mbus.delayed rename to delayed_0;
alter table mbus.delayed_0 drop constraint delayed_pkey;
alter table mbus.delayed_0 alter column id drop identity;
create sequence mbus.delayed_id;
select setval('mbus.delayed_id', coalesce((select max(id) from mbus.delayed_0), 0) + 1);
create sequence mbus.delayed_tail minvalue 0 start 0;
select setval('mbus.delayed_tail', 0);
alter table mbus.delayed_0 alter column id set default nextval('mbus.delayed_id');
alter table mbus.delayed_0 add column segment integer constraint delayed_segment_not_null not null default 0;
alter table mbus.delayed_0 alter column segment set default pg_sequence_last_value('mbus.delayed_tail');
alter index mbus.delayed_due_idx rename to delayed_0_queue_id_due_at_idx;
alter index mbus.delayed_expires_idx rename to delayed_0_queue_id_expires_idx;
alter index mbus.delayed_by_number_idx rename to delayed_0_queue_id_number_idx;
alter index mbus.delayed_holds_group_idx rename to delayed_0_consumer_id_group_name_idx;
create table mbus.delayed (like mbus.delayed_0 including defaults) partition by list (segment);
alter table mbus.delayed attach partition mbus.delayed_0 for values in (0);
create table mbus.delayed_1 partition of mbus.delayed for values in (1);
create table mbus.delayed_2 partition of mbus.delayed for values in (2);
create index delayed_by_id_idx on mbus.delayed (id);
create index delayed_due_idx on mbus.delayed (queue_id, due_at);
create index delayed_expires_idx on mbus.delayed (queue_id, expires) where expires is not null;
create index delayed_by_number_idx on mbus.delayed (queue_id, number);
create index delayed_holds_group_idx on mbus.delayed (consumer_id, group_name) where group_name is not null;
