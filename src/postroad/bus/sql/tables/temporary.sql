-- Temporary queues are rows, never tables: thousands are created and dropped, which must not fill the catalogue
-- with dead rows.  Each belongs to the session that created it and ends with that session.
--   session  drawn by the session; the owner is the session with this value and the pid
--   payload  null: a queue for answers, which takes any payload
create table mbus.temporary_queue (
  name       text primary key constraint temporary_name_is_known check (name ~ '^temp\.[0-9a-f]{16}$'),
  session    uuid not null,
  pid        integer not null,
  payload    text constraint temporary_payload_is_known check (payload in ('hstore', 'jsonb', 'text', 'bytea')),
  created_at timestamptz not null default clock_timestamp()
);
create index temporary_queue_by_pid_idx on mbus.temporary_queue (pid);

-- An answer; exactly one of the data columns is used, the one named by payload.
create type mbus.reply_model as (
  correlation text, iid text, added timestamptz, expires timestamptz, headers hstore, properties hstore,
  payload text, data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea);

-- Messages of all temporary queues, in a ring of three tables which are filled in turn and truncated, so
-- that dead rows stay few even while a session holds an old snapshot.  Every search is by (destination, id).
create table mbus.tempq_0 (
  id bigint not null, destination text not null, added timestamptz not null, delayed_until timestamptz,
  expires timestamptz, headers hstore, properties hstore,
  data_hstore hstore, data_jsonb jsonb, data_text text, data_bytea bytea
) with (autovacuum_vacuum_threshold = 200000, autovacuum_vacuum_insert_threshold = -1,
        autovacuum_analyze_threshold = 2000000000);
create index tempq_0_by_destination_idx on mbus.tempq_0 (destination, id);
create table mbus.tempq_1 (like mbus.tempq_0 including storage) with (autovacuum_vacuum_threshold = 200000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2000000000);
create index tempq_1_by_destination_idx on mbus.tempq_1 (destination, id);
create table mbus.tempq_2 (like mbus.tempq_0 including storage) with (autovacuum_vacuum_threshold = 200000,
  autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 2000000000);
create index tempq_2_by_destination_idx on mbus.tempq_2 (destination, id);

-- Control figures, in sequences because these change in place:
--   position  the last id drawn
--   tail      the life of the table that is written to, times four, plus its number
--   opened    when that use began, in seconds since 1970
--   life_N    number of the current use of table N, counted from 1; 0 while it is not in use
create sequence mbus.tempq_position;
create sequence mbus.tempq_tail minvalue 0 start 4;
create sequence mbus.tempq_opened minvalue 0 start 0;
create sequence mbus.tempq_life_0 minvalue 0 start 1;
create sequence mbus.tempq_life_1 minvalue 0 start 0;
create sequence mbus.tempq_life_2 minvalue 0 start 0;
select setval('mbus.tempq_tail', 4), setval('mbus.tempq_opened', 0),
       setval('mbus.tempq_life_0', 1), setval('mbus.tempq_life_1', 0), setval('mbus.tempq_life_2', 0);
