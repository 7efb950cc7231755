-- Who may use the console: local accounts, and those of an OpenID Connect provider.  The two are kinds of their
-- own, so that nobody becomes somebody else by having the same name elsewhere.
--   password_hash     argon2id; null for those of a provider
--   is_unused         the first start has made the password, and nobody has signed in with it yet
--   issuer, subject   who it is at the provider; null for local accounts
create table console.account (
  name          text primary key constraint account_name_is_plain check (name ~ '^[a-z0-9_.@+-]{1,200}$'),
  role          text not null constraint role_is_known check (role in ('viewer', 'operator', 'admin')),
  password_hash text,
  created_at    timestamptz not null default clock_timestamp(),
  changed_at    timestamptz not null default clock_timestamp(),
  is_unused     boolean not null default false,
  issuer        text,
  subject       text,
  constraint identity_is_whole check ((issuer is null) = (subject is null)),
  constraint identity_has_no_password check (issuer is null or password_hash is null),
  constraint identity_has_one_account unique (issuer, subject)
);
