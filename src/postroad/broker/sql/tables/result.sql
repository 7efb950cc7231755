-- The result of a task or the parts of a group, as Celery encodes them.
--   key     the task's or group's key
--   status  Celery's state of a task; a success is never overwritten
create table broker.result (
  key        text primary key constraint key_is_short check (octet_length(key) <= 1000),
  status     text not null,
  value      bytea not null,
  expires_at timestamptz
) with (autovacuum_vacuum_scale_factor = 0.05);
create index result_expires_idx on broker.result (expires_at) where expires_at is not null;

-- A part of a chord that has ended.  A task that runs twice is still one part.
create table broker.chord_part (
  group_key  text not null,
  task_id    text not null,
  expires_at timestamptz,
  constraint part_is_unique_in_its_chord primary key (group_key, task_id)
);
create index chord_part_expires_idx on broker.chord_part (expires_at) where expires_at is not null;
