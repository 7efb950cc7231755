-- The audit log.  A row is written before an action, and its outcome is added afterwards: an action that a crash interrupted stays recorded
-- as begun.  Postroad never deletes rows.
create table console.audit (
  id       bigint generated always as identity primary key,
  at       timestamptz not null default clock_timestamp(),
  account  text not null,
  role     text not null,
  address  text not null,
  action   text not null,
  target   text not null,
  detail   jsonb not null default '{}',
  outcome  text not null constraint outcome_is_known check (outcome in ('begun', 'done', 'failed', 'refused')),
  error    text,
  ended_at timestamptz
);
create index audit_by_account_idx on console.audit (account, id);
create index audit_by_action_idx on console.audit (action, id);
