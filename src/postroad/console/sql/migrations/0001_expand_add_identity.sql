-- breaks older: yes
-- Accounts that a provider's login has made before are left as they are, local ones without a password: nothing
-- tells whose they were.  Their people are refused until an administrator removes those accounts.
alter table console.account
  add column is_unused boolean not null default false,
  add column issuer text,
  add column subject text,
  add constraint identity_is_whole check ((issuer is null) = (subject is null)),
  add constraint identity_has_no_password check (issuer is null or password_hash is null),
  add constraint identity_has_one_account unique (issuer, subject);
drop function if exists console.accounts();
drop function if exists console.fail_login(text, text);
