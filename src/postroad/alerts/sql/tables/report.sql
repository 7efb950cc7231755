-- Reports of components, in their own transactions.  Only inserted and folded, never updated: two transactions that
-- report the same key neither wait for each other nor deadlock, and a storm costs one short row each.
create table alerts.report (
  id       bigint generated always as identity primary key,
  is_raise boolean not null,
  key      text not null,
  room     text,
  severity text,
  title    text,
  body     text,
  at       timestamptz not null,
  constraint raised_report_is_whole
    check (not is_raise or (room is not null and severity is not null and title is not null and body is not null))
);
