-- The accounts of the console: local accounts, and those of an OpenID Connect provider.  The two kinds are separate, so that a user of the
-- provider never gets a local account of the same name.
--   password_hash     argon2id; null for accounts of a provider
--   is_unused         the password was generated at the first start and has not been used to sign in
--   issuer, subject   identity at the provider; null for local accounts
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
