-- A durable subscriber of a queue.
create table mbus.consumer (
  id           integer generated always as identity primary key,
  queue_id     integer not null references mbus.queue (id) on delete cascade,
  name         text not null,
  selector     text,
  max_attempts integer not null default 10 constraint max_attempts_is_positive check (max_attempts > 0),
  backoff      interval not null default '1 second' constraint backoff_is_not_negative check (backoff >= '0'),
  backoff_max  interval not null default '10 minutes',
  created_at   timestamptz not null default clock_timestamp(),
  -- message: messages are taken one by one.  cursor: messages are taken in order, and a position advances.
  contract     text not null default 'message' constraint contract_is_known check (contract in ('message', 'cursor')),
  constraint consumer_name_is_unique_in_its_queue unique (queue_id, name)
);
