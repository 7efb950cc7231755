-- Recent logins that have failed or are in progress; the limit is computed from them.
create table console.login_attempt (
  id      bigint generated always as identity primary key,
  name    text not null,
  address text not null,
  at      timestamptz not null default clock_timestamp()
);
create index login_attempt_at_idx on console.login_attempt (at);
