-- Makes an account or changes the one that is there: what is null stays as it is.  A new password ends all
-- sessions of the account, and so does a new role.
create or replace function console.put_account(p_name text, p_role text default null, p_password_hash text default null)
returns void
language plpgsql set search_path from current as $$
begin
  insert into console.account (name, role, password_hash)
  values (lower(p_name), coalesce(p_role, 'viewer'), p_password_hash)
  on conflict (name) do update
  set role = coalesce(p_role, account.role),
      password_hash = coalesce(p_password_hash, account.password_hash),
      changed_at = clock_timestamp();
  delete from console.session s where s.account = lower(p_name);
end $$;

-- Makes the first account unless there is one; tells whether it did.  Two processes at once make one.
create or replace function console.put_first_account(p_name text, p_password_hash text) returns boolean
language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  if exists (select from console.account) then return false; end if;
  insert into console.account (name, role, password_hash) values (p_name, 'admin', p_password_hash);
  return true;
end $$;

-- Removes an account with its sessions; tells whether it was there.  The last admin stays.
create or replace function console.drop_account(p_name text) returns boolean
language plpgsql set search_path from current as $$
begin
  perform pg_advisory_xact_lock(hashtext('console.account'));
  if not exists (select from console.account where role = 'admin' and name <> lower(p_name)) then
    raise exception 'account "%" is the last admin', p_name
      using errcode = 'KN001', hint = 'Make another admin first.';
  end if;
  delete from console.account where name = lower(p_name);
  return found;
end $$;

create or replace function console.accounts()
returns table (name text, role text, has_password boolean, created_at timestamptz, changed_at timestamptz, sessions bigint)
language sql stable set search_path from current as $$
  select a.name, a.role, a.password_hash is not null, a.created_at, a.changed_at,
         (select count(*) from console.session s where s.account = a.name and s.expires_at > clock_timestamp())
  from console.account a order by a.name
$$;
