-- The recipients of copies of messages posted to a queue: another queue (a trigger) or a temporary queue (a temporary consumer).
create table mbus.follower (
  id             integer generated always as identity primary key,
  queue_id       integer not null references mbus.queue (id) on delete cascade,
  destination_id integer references mbus.queue (id) on delete cascade,
  temporary_name text references mbus.temporary_queue (name) on delete cascade,
  selector       text,
  created_at     timestamptz not null default clock_timestamp(),
  constraint follower_has_one_destination check (num_nonnulls(destination_id, temporary_name) = 1),
  constraint trigger_is_unique unique (queue_id, destination_id)
);
create index follower_by_destination_idx on mbus.follower (destination_id) where destination_id is not null;
create index follower_by_temporary_idx on mbus.follower (temporary_name) where temporary_name is not null;
create index follower_temporary_of_queue_idx on mbus.follower (queue_id) where temporary_name is not null;
