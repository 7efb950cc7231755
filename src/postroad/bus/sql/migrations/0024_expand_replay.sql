-- breaks older: no
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
create table mbus.replay_copy (
  replay_id bigint not null references mbus.replay (id) on delete cascade,
  number    bigint not null,
  primary key (replay_id, number)
);
-- Replaced by a function with more arguments, which the same calls reach.
drop function if exists mbus.create_consumer(text, text, text, boolean);
