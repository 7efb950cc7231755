-- breaks older: no
alter table mbus.queue add column retain interval, add column retain_size bigint;
create table mbus.retained (
  id          bigint generated always as identity primary key,
  queue_id    integer references mbus.queue (id) on delete set null,
  messages    bigint not null,
  bytes       bigint not null,
  first_id    bigint not null,
  last_id     bigint not null,
  first_at    timestamptz not null,
  last_at     timestamptz not null,
  retained_at timestamptz not null
);
create index retained_by_queue_idx on mbus.retained (queue_id, first_id);
-- Replaced by a function with more arguments, which the same calls reach.
drop function if exists mbus.alter_queue(text, boolean);
