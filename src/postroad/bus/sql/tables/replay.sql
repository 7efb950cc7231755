-- Replays, in which maintenance posts consumed messages to a consumer again, see functions/replay.sql.  Updated once per batch, in the
-- same transaction.
--   until      null if the caller gave none: messages that were posted before the replay
--   rate       messages per second; null: no limit
--   is_start   the consumer was created to begin in the past, and is paused until then
--   first_id, place, bound  ids of stored messages: the first, the last one examined, and the last one to examine, null until it is known
--   waits_for  with is_start: open transactions that may have posted before they saw the consumer
create table mbus.replay (
  id          bigint generated always as identity primary key,
  queue_id    integer not null references mbus.queue (id) on delete cascade,
  consumer_id integer not null references mbus.consumer (id) on delete cascade,
  since       timestamptz not null,
  until       timestamptz,
  selector    text,
  rate        integer,
  is_start    boolean not null default false,
  first_id    bigint,
  place       bigint not null default 0,
  bound       bigint,
  waits_for   text[],
  messages    bigint not null default 0,
  started_at  timestamptz not null,
  started_by  text not null,
  ran_at      timestamptz,
  finished_at timestamptz,
  error       text
) with (fillfactor = 50);
create index replay_by_consumer_idx on mbus.replay (consumer_id);
create index replay_by_queue_idx on mbus.replay (queue_id);
-- Messages of a replay that are stored as copies only, because they were delayed or their iid was reserved; until the replay ends.
create table mbus.replay_copy (
  replay_id bigint not null references mbus.replay (id) on delete cascade,
  number    bigint not null,
  primary key (replay_id, number)
);
