-- breaks older: no
create table mbus.schedule (
  name         text primary key,
  timing       text not null,
  timezone     text not null,
  queue_id     integer not null references mbus.queue (id) on delete cascade,
  data         text,
  headers      hstore,
  properties   hstore,
  missed       text not null constraint missed_is_known check (missed in ('skip', 'once', 'all')),
  next_at      timestamptz,
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  created_at   timestamptz not null
) with (fillfactor = 50);
create index schedule_by_queue_idx on mbus.schedule (queue_id);
create table mbus.schedule_run (
  id         bigint generated always as identity primary key,
  schedule   text not null references mbus.schedule (name) on delete cascade,
  planned_at timestamptz not null,
  ran_at     timestamptz not null,
  outcome    text not null constraint outcome_is_known check (outcome in ('posted', 'skipped', 'failed')),
  iid        text,
  error      text
);
create index schedule_run_by_schedule_idx on mbus.schedule_run (schedule, id);
