-- One logical queue over several databases.
--   active: takes posts and is consumed; draining: is consumed only; drained: is empty and may be removed
create table bridge.shard (
  logical    text not null,
  name       text not null,
  database   text not null,
  state      text not null default 'active'
    constraint shard_state_is_known check (state in ('active', 'draining', 'drained')),
  weight     integer not null default 1 constraint weight_is_positive check (weight > 0),
  changed_at timestamptz not null default clock_timestamp(),
  primary key (logical, name)
);
-- Counts every change, so that who holds the list in memory sees at a glance whether it is still true.
create sequence bridge.shard_epoch;

-- In the database of a shard: whether it takes posts of a logical queue.  Posts hold a shared lock on it, closing it an
-- exclusive one: once it is closed, no post is open.
create table bridge.gate (
  logical text primary key,
  is_open boolean not null
);
