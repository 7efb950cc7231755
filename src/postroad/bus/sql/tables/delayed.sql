-- Messages that wait for a moment: posted with delayed_until, or given back with a delay.
--   consumer_id  set when only this consumer waits for it (a retry)
--   group_name   set on a retry that holds up its group
create table mbus.delayed (
  id          bigint generated always as identity primary key,
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
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea
);
create index delayed_due_idx on mbus.delayed (queue_id, due_at);
create index delayed_expires_idx on mbus.delayed (queue_id, expires) where expires is not null;
create index delayed_by_number_idx on mbus.delayed (queue_id, number);
create index delayed_holds_group_idx on mbus.delayed (consumer_id, group_name) where group_name is not null;
