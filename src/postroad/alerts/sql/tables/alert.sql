-- One episode of one key: from its first report until it is cleared.  Raising the same key in the meantime increments its count; after the
-- all-clear it begins a new episode.
create table alerts.alert (
  id         bigint generated always as identity primary key,
  key        text not null,
  room       text not null,
  severity   text not null constraint alert_severity_is_known
               check (severity in ('info', 'warning', 'error', 'critical')),
  title      text not null,
  body       text not null,
  count      bigint not null,
  raised_at  timestamptz not null,
  last_at    timestamptz not null,
  cleared_at timestamptz,
  acked_at   timestamptz,
  acked_by   text,
  constraint acknowledged_by_somebody check ((acked_at is null) = (acked_by is null))
);
create unique index alert_one_open_per_key_idx on alerts.alert (key) where cleared_at is null;
create index alert_cleared_idx on alerts.alert (cleared_at) where cleared_at is not null;
