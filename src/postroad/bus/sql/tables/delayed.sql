-- Messages that are not due yet: posted with delayed_until, or given back with a delay.
--   consumer_id  set when only this consumer waits for it (a retry)
--   group_name   set on a retry that holds up its group
--   segment      which of the three tables it is in.  They are written to one after the other and truncated when they are empty, so
--                that dead rows do not stay for as long as a session holds an old snapshot; see mbus._rotate_delayed
create sequence mbus.delayed_id;
create sequence mbus.delayed_tail minvalue 0 start 0;
select setval('mbus.delayed_tail', 0);
create table mbus.delayed (
  id          bigint not null default nextval('mbus.delayed_id'),
  queue_id    integer not null,
  consumer_id integer,
  group_name  text,
  due_at      timestamptz not null,
  number      bigint not null,
  added       timestamptz not null,
  expires     timestamptz,
  headers     hstore,
  properties  hstore,
  trail       jsonb,
  recipients  integer[],
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea,
  segment     integer not null default pg_sequence_last_value('mbus.delayed_tail')
) partition by list (segment);
create table mbus.delayed_0 partition of mbus.delayed for values in (0);
create table mbus.delayed_1 partition of mbus.delayed for values in (1);
create table mbus.delayed_2 partition of mbus.delayed for values in (2);
create index delayed_by_id_idx on mbus.delayed (id);
create index delayed_due_idx on mbus.delayed (queue_id, due_at);
create index delayed_expires_idx on mbus.delayed (queue_id, expires) where expires is not null;
create index delayed_by_number_idx on mbus.delayed (queue_id, number);
create index delayed_holds_group_idx on mbus.delayed (consumer_id, group_name) where group_name is not null;
