-- A queue.  Its messages are stored in its own tables (see README.md); values that change with each message are kept in sequences, so this
-- row changes only when the queue is altered.
create table mbus.queue (
  id         integer generated always as identity primary key,
  name       text not null constraint queue_name_is_unique unique,
  payload    text not null constraint payload_is_known check (payload in ('hstore', 'jsonb', 'text', 'bytea')),
  slots      integer not null constraint slots_are_between_2_and_256 check (slots between 2 and 256),
  is_roles_security_model boolean not null,
  -- direct: one consumer, which deletes the payload rows themselves.
  -- fanout: payload rows are a log, each consumer deletes its own narrow rows.
  mode       text not null default 'direct' constraint mode_is_known check (mode in ('direct', 'fanout')),
  lanes      text[] not null default '{normal}',
  has_groups boolean not null default false,
  -- Posted messages are copied to followers, see follower; stays true when temporary consumers end.
  has_followers boolean not null default false,
  -- Messages of other queues, or of this one, wait for messages of this queue.
  has_waiters boolean not null default false,
  -- Sequences of this queue: the last id drawn, and the last id when maintenance found nothing to do.
  position   regclass not null,
  swept      regclass not null,
  created_at timestamptz not null default clock_timestamp(),
  -- How long and how many bytes of consumed messages are kept, see retained; null: no limit.  Both null: none are kept.
  retain      interval,
  retain_size bigint,
  -- The property or field of the payload by which mbus.find finds its messages, see mbus._link_expressions.
  track       text,
  -- The JSON Schema that posted data must match, see mbus._check_schema.
  schema      jsonb
);
