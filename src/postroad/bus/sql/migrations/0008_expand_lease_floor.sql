-- breaks older: no
-- Each insert into these tables locked the row of its queue and of its consumer.
alter table mbus.leased drop constraint leased_queue_id_fkey;
alter table mbus.leased drop constraint leased_consumer_id_fkey;
alter table mbus.delayed drop constraint delayed_queue_id_fkey;
alter table mbus.delayed drop constraint delayed_consumer_id_fkey;
alter table mbus.blocked drop constraint blocked_queue_id_fkey;
alter table mbus.reserved drop constraint reserved_queue_id_fkey;
alter table mbus.dedup drop constraint dedup_queue_id_fkey;
create sequence mbus.lease_floor minvalue 0 start 0;
select setval('mbus.lease_floor', 0);
drop index mbus.leased_holds_group_idx;
create index leased_holds_group_idx on mbus.leased (consumer_id, group_name, token) where group_name is not null;
-- Replaced by functions with other parameters.
drop function if exists mbus._expire(mbus.queue, integer);
drop function if exists mbus._expire_aside(mbus.queue, integer);
