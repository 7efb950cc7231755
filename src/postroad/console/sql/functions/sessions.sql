-- Returns the hash to compare a password with, unless there were too many recent failures from this address or for this
-- name.  The limit for a name is ten times higher, so that an attacker cannot easily lock an account.
-- Each attempt counts as failed from here on, before the expensive comparison, so that concurrent attempts are limited
-- in the same way as successive ones.  Locks: all logins, while attempts are counted.
create or replace function console.begin_login(p_name text, p_address text, p_most integer, p_window interval)
returns table (is_allowed boolean, password_hash text)
language plpgsql set search_path from current as $$
declare
  v_from_address bigint;
  v_for_name     bigint;
begin
  perform pg_advisory_xact_lock(hashtext('console.login_attempt'));
  delete from console.login_attempt t where t.at < clock_timestamp() - p_window;
  select count(*) filter (where t.address = p_address), count(*) filter (where t.name = lower(p_name))
  into v_from_address, v_for_name
  from console.login_attempt t;
  if v_from_address >= p_most or v_for_name >= 10 * p_most then
    return query select false, null::text;
  else
    insert into console.login_attempt (name, address) values (lower(p_name), p_address);
    return query select true, (select a.password_hash from console.account a where a.name = lower(p_name));
  end if;
end $$;

-- Opens a session, and deletes expired ones.  Deletes only the failures of this name from this address:
-- the owner of one account must not get more attempts at another.
create or replace function console.open_session(p_name text, p_token_hash text, p_address text, p_lifetime interval)
returns void
language sql set search_path from current as $$
  delete from console.session s where s.expires_at < clock_timestamp();
  delete from console.login_attempt t where t.address = p_address and t.name = lower(p_name);
  update console.account a set is_unused = false where a.name = lower(p_name) and a.is_unused;
  insert into console.session (token_hash, account, address, expires_at)
  values (p_token_hash, lower(p_name), p_address, clock_timestamp() + p_lifetime);
$$;

create or replace function console.find_session(p_token_hash text)
returns table (account text, role text, expires_at timestamptz)
language sql stable set search_path from current as $$
  select s.account, a.role, s.expires_at
  from console.session s join console.account a on a.name = s.account
  where s.token_hash = p_token_hash and s.expires_at > clock_timestamp()
$$;

create or replace function console.close_session(p_token_hash text) returns void
language sql set search_path from current as $$
  delete from console.session where token_hash = p_token_hash
$$;
