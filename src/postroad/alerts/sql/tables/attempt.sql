-- Each attempt to send a notice.  An attempt without an outcome is in progress, or its sender died.
create table alerts.attempt (
  id         bigint generated always as identity primary key,
  notice_id  bigint not null references alerts.notice (id) on delete cascade,
  sender     text not null,
  started_at timestamptz not null,
  ended_at   timestamptz,
  outcome    text constraint attempt_outcome_is_known check (outcome in ('sent', 'failed', 'abandoned')),
  error      text
);
create index attempt_of_notice_idx on alerts.attempt (notice_id, id);
