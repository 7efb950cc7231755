-- Refuses a change that would remove the last local admin.  Admins of a provider do not count: the provider sets
-- their role, and they cannot sign in while it is unavailable.
--   KN001  it is the last admin
create or replace function console._keep_an_admin(p_name text) returns void
language plpgsql stable set search_path from current as $$
begin
  if exists (select from console.account a where a.name = lower(p_name) and a.role = 'admin' and a.issuer is null)
     and not exists (select from console.account a
                     where a.name <> lower(p_name) and a.role = 'admin' and a.password_hash is not null) then
    raise exception 'account "%" is the last admin', p_name
      using errcode = 'KN001', hint = 'Add another admin first.';
  end if;
end $$;
