-- The position of a queue, recorded by maintenance every few seconds while messages are posted: the source of the posting rate and of
-- mbus.tally.  Append-only, old rows are deleted by key.
create table mbus.sample (
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  taken_at    timestamptz not null,
  posted      bigint not null,
  primary key (consumer_id, taken_at)
);

-- When maintenance last ran, in seconds since 1970.  A sequence, because it changes all the time.
create sequence mbus.attended minvalue 0 start 0;
select setval('mbus.attended', 0);
-- Counts the runs of maintenance: some work is done in every eighth of them, or in each for a part of the queues.
create sequence mbus.tick;
