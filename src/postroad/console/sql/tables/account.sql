-- Who may use the console.
--   password_hash  argon2id; null when the account signs in through OpenID Connect only
create table console.account (
  name          text primary key constraint account_name_is_plain check (name ~ '^[a-z0-9_.@+-]{1,200}$'),
  role          text not null constraint role_is_known check (role in ('viewer', 'operator', 'admin')),
  password_hash text,
  created_at    timestamptz not null default clock_timestamp(),
  changed_at    timestamptz not null default clock_timestamp()
);
