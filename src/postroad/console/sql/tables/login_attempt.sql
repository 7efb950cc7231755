-- Logins of the last while that did not succeed, or not yet: what the limit is counted from.
create table console.login_attempt (
  id      bigint generated always as identity primary key,
  name    text not null,
  address text not null,
  at      timestamptz not null default clock_timestamp()
);
create index login_attempt_at_idx on console.login_attempt (at);
