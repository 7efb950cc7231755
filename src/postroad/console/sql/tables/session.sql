-- The sessions of signed-in accounts. The token itself is only in the browser's cookie.
create table console.session (
  token_hash text primary key,
  account    text not null references console.account (name) on delete cascade,
  address    text not null,
  opened_at  timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null
);
create index session_expires_idx on console.session (expires_at);
create index session_by_account_idx on console.session (account);
