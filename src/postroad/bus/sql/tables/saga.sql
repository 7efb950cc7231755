-- A saga: in the end all steps are done, or every done step is compensated.
--   queue_id, bung_number    the bung, in the service queue `sagas`; taking it starts the rollback
--   gate_number              a number of that queue that is never posted: only the saga releases messages that wait for it
--   completed_*, compensated_*  the closing messages of both directions
--   check_at                 when maintenance has to check it: deadline, or a message is held by another transaction
create table mbus.saga (
  id          bigint generated always as identity primary key,
  name        text not null,
  state       text not null default 'running' constraint saga_state_is_known
                check (state in ('running', 'completed', 'compensating', 'compensated', 'stuck')),
  is_parallel boolean not null,
  pivot       text,
  deadline    timestamptz,
  error       text,
  queue_id    integer not null,
  bung_number bigint not null,
  gate_number bigint not null,
  completed_queue_id   integer,
  completed_number     bigint,
  compensated_queue_id integer,
  compensated_number   bigint,
  check_at     timestamptz,
  created_at   timestamptz not null,
  cancelled_at timestamptz,
  finished_at  timestamptz,
  constraint finished_saga_has_a_time check ((state in ('completed', 'compensated')) = (finished_at is not null))
);
create unique index saga_by_bung_idx on mbus.saga (queue_id, bung_number);
create index saga_by_state_idx on mbus.saga (state, id);
create index saga_check_idx on mbus.saga (check_at) where check_at is not null;
create index saga_finished_idx on mbus.saga (finished_at) where finished_at is not null;

-- A step.  Whether its compensation may run is decided only by this row.
--   state       waiting: its message has not been handled; done; failed: given up; skipped: taken away in time;
--               compensating: its compensation is released; compensated; parked: its compensation died
--   done_by     the transaction that handled the message
--   is_aborted  its handler reported that it did nothing, so a later ack of its message does not make it done
--   is_undo_lost  its compensation was lost, because its queue was dropped
--   is_settled  both its messages are gone, and nothing is left to do
create table mbus.saga_step (
  saga_id       bigint not null references mbus.saga (id) on delete cascade,
  name          text not null,
  position      integer not null,
  after         text[] not null,
  state         text not null default 'waiting' constraint step_state_is_known
                  check (state in ('waiting', 'done', 'failed', 'skipped', 'compensating', 'compensated', 'parked')),
  do_queue_id   integer not null,
  do_consumer_id integer not null,
  do_number     bigint not null,
  undo_queue_id integer,
  undo_consumer_id integer,
  undo_number   bigint,
  done_by       xid8,
  is_aborted    boolean not null default false,
  is_undo_lost  boolean not null default false,
  is_settled    boolean not null default false,
  attempts      integer not null default 0,
  undo_attempts integer not null default 0,
  error         text,
  undo_error    text,
  done_at       timestamptz,
  undone_at     timestamptz,
  primary key (saga_id, name)
);
create unique index saga_step_by_do_idx on mbus.saga_step (do_queue_id, do_number);
create unique index saga_step_by_undo_idx on mbus.saga_step (undo_queue_id, undo_number) where undo_number is not null;

-- Notes about the changes that a transaction makes to sagas.  They are processed and deleted when the transaction commits, so that a saga
-- is not locked while a handler runs; other sessions never see a row here.
create table mbus.saga_note (
  id         bigint generated always as identity primary key,
  written_by xid8 not null default pg_current_xact_id(),
  saga_id    bigint not null,
  kind       text not null constraint note_is_known
               check (kind in ('done', 'taken', 'undone', 'died', 'bung', 'aborted')),
  step       text,
  error      text
);
create index saga_note_by_writer_idx on mbus.saga_note (written_by);
