-- Adds a local account or changes an existing one: null keeps a value unchanged.  A new password ends all
-- sessions of the account, and so does a new role.  Locks: all accounts.
--   KN001  it is the last admin and would no longer be one
--   KN002  the name belongs to an account of a provider
create or replace function console.put_account(p_name text, p_role text default null, p_password_hash text default null)
returns void
language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  if exists (select from console.account a where a.name = lower(p_name) and a.issuer is not null) then
    raise exception 'account "%" belongs to the OpenID Connect provider', p_name
      using errcode = 'KN002', hint = 'The provider sets its role and its password; choose another name.';
  end if;
  if p_role is not null and p_role <> 'admin' then
    perform console._keep_an_admin(p_name);
  end if;
  insert into console.account (name, role, password_hash)
  values (lower(p_name), coalesce(p_role, 'viewer'), p_password_hash)
  on conflict (name) do update
  set role = coalesce(p_role, account.role),
      password_hash = coalesce(p_password_hash, account.password_hash),
      is_unused = account.is_unused and p_password_hash is null,
      changed_at = clock_timestamp();
  delete from console.session s where s.account = lower(p_name);
end $$;

-- Adds the account of a provider's user, or updates the role of the existing one; returns the
-- account's name, which stays that of the first login.  A new role ends the sessions.  Locks: all accounts.
--   KN002  the name belongs to a local account, or to another user of a provider
create or replace function console.put_identity(p_issuer text, p_subject text, p_name text, p_role text) returns text
language plpgsql set search_path from current as $$
declare
  v_account console.account;
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  select * into v_account from console.account a where a.issuer = p_issuer and a.subject = p_subject;
  if not found then
    if exists (select from console.account a where a.name = lower(p_name)) then
      raise exception 'the name "%" belongs to another account of the console', lower(p_name)
        using errcode = 'KN002', hint = 'Rename one of them, or remove the unused account.';
    end if;
    insert into console.account (name, role, issuer, subject) values (lower(p_name), p_role, p_issuer, p_subject);
    return lower(p_name);
  end if;
  if v_account.role <> p_role then
    update console.account a set role = p_role, changed_at = clock_timestamp() where a.name = v_account.name;
    delete from console.session s where s.account = v_account.name;
  end if;
  return v_account.name;
end $$;

-- Adds the first account if there is none, or sets its password if the previous one was never used to sign in, because others may have seen
-- that one.  Returns whether it changed anything.  Locks: all accounts.
create or replace function console.put_first_account(p_name text, p_password_hash text) returns boolean
language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  update console.account a set password_hash = p_password_hash, changed_at = clock_timestamp()
  where a.name = p_name and a.is_unused;
  if found then return true; end if;
  if exists (select from console.account) then return false; end if;
  insert into console.account (name, role, password_hash, is_unused) values (p_name, 'admin', p_password_hash, true);
  return true;
end $$;

-- Removes an account with its sessions; returns whether it existed.  The last admin cannot be removed.  Locks: all accounts.
--   KN001  it is the last admin
create or replace function console.drop_account(p_name text) returns boolean
language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  perform console._keep_an_admin(p_name);
  delete from console.account where name = lower(p_name);
  return found;
end $$;

create or replace function console.accounts()
returns table (name text, role text, has_password boolean, created_at timestamptz, changed_at timestamptz,
               sessions bigint, issuer text)
language sql stable set search_path from current as $$
  select a.name, a.role, a.password_hash is not null, a.created_at, a.changed_at,
         (select count(*) from console.session s where s.account = a.name and s.expires_at > clock_timestamp()),
         a.issuer
  from console.account a order by a.name
$$;
