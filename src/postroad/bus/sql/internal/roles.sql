-- Every queue has a role that may post and, per consumer, one that may consume.  A queue without is_roles_security_model is open to
-- mbus_<db>_user as well; mbus_<db>_admin may do everything.  All of them are members of mbus_<db>_caller, which may call the functions
-- that get their queue as an argument and check the permissions themselves.

create or replace function mbus._role(p_suffix text) returns text
language sql stable set search_path from current as $$ select 'mbus_' || current_database() || '_' || p_suffix $$;

create or replace function mbus._post_role(p_queue text) returns text
language sql stable set search_path from current as $$ select mbus._role('post_' || p_queue) $$;

create or replace function mbus._consume_role(p_queue text, p_consumer text) returns text
language sql stable set search_path from current as $$ select mbus._role('consume_' || p_queue || '_by_' || p_consumer) $$;

-- Creates a missing role.  A queue that requires roles is refused without permission to create them, or if their names are too long.
create or replace function mbus._create_role(p_role text, p_is_required boolean) returns void
language plpgsql set search_path from current as $$
declare
  v_caller constant text := mbus._role('caller');
begin
  if octet_length(p_role) > 63 then
    if p_is_required then
      raise exception 'the name of role "%" has % bytes', p_role, octet_length(p_role)
        using errcode = 'MB006', hint = 'An identifier has at most 63 bytes. Choose shorter names of queue and consumer.';
    end if;
    return;
  end if;
  if not exists (select from pg_roles where rolname = p_role) then
    begin
      execute format('create role %I nologin', p_role);
    exception when duplicate_object or unique_violation then null;    -- made by another session just now
    end;
  end if;
  if p_role <> v_caller and exists (select from pg_roles where rolname = v_caller)
     and not pg_has_role(p_role, v_caller, 'member') then
    execute format('grant %I to %I', v_caller, p_role);
  end if;
exception when insufficient_privilege then
  if p_is_required then
    raise exception 'role "%" is missing and cannot be created', p_role
      using errcode = 'MB013', hint = 'The owner of schema mbus needs CREATEROLE for queues with is_roles_security_model.';
  end if;
end $$;

create or replace function mbus._drop_role(p_role text) returns void
language plpgsql set search_path from current as $$
begin
  if exists (select from pg_roles where rolname = p_role) then
    execute format('drop role %I', p_role);
  end if;
exception when insufficient_privilege or dependent_objects_still_exist then
  raise warning 'role "%" was left behind: %', p_role, sqlerrm;
end $$;

-- Lets only the owner and the given roles execute a function.  What is granted is not granted again, because each grant replaces the
-- function's row, and an upgrade does so for the functions of all queues.
create or replace function mbus._allow(p_function regprocedure, p_roles text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_granted constant oid[] := array(select a.grantee from pg_proc p cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
                                    where p.oid = p_function);
  v_missing constant text := (select string_agg(quote_ident(r.rolname), ', ') from pg_roles r
                              where r.rolname = any (p_roles) and r.oid <> all (v_granted));
begin
  if 0 = any (v_granted) then
    execute format('revoke all on function %s from public', p_function);
  end if;
  if v_missing is not null then
    execute format('grant execute on function %s to %s', p_function, v_missing);
  end if;
end $$;

create or replace function mbus._disallow(p_function regprocedure, p_roles text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_role text;
begin
  for v_role in select r.rolname from pg_roles r where r.rolname = any (p_roles) loop
    execute format('revoke execute on function %s from %I', p_function, v_role);
  end loop;
end $$;

-- True when the session's user is the owner of the schema or has role mbus_<db>_admin.
create or replace function mbus._is_admin() returns boolean
language sql stable set search_path from current as $$
  select exists (
           select from pg_namespace n where n.nspname = 'mbus' and pg_has_role(session_user, n.nspowner, 'usage'))
      or exists (
        select from pg_roles r where r.rolname = mbus._role('admin') and pg_has_role(session_user, r.oid, 'usage'))
$$;

-- True when the session's user may post to the queue or consume from it.
create or replace function mbus._may_use(p_queue text) returns boolean
language sql stable set search_path from current as $$
  select mbus._is_admin()
      or exists (
        select from pg_proc p
        where p.pronamespace = 'mbus'::regnamespace and p.proname in ('post_' || p_queue, 'peek_' || p_queue)
          and has_function_privilege(session_user, p.oid, 'execute'))
$$;

-- True when the session's user may use the queue through a shared function such as mbus.ack.  The check of administrators is cheaper.
create or replace function mbus._may_consume(p_queue mbus.queue, p_consumer text) returns boolean
language sql stable set search_path from current as $$
  select mbus._is_admin()
      or exists (
        select from pg_roles r
        where r.rolname in (mbus._consume_role(p_queue.name, p_consumer),
                            case when not p_queue.is_roles_security_model then mbus._role('user') end)
          and pg_has_role(session_user, r.oid, 'usage'))
$$;

create or replace function mbus._check_consume(p_queue mbus.queue, p_consumer text) returns void
language plpgsql stable set search_path from current as $$
begin
  if not mbus._may_consume(p_queue, p_consumer) then
    raise exception 'user "%" may not consume from queue "%" as "%"', session_user, p_queue.name, p_consumer
      using errcode = 'MB013', hint = format('Grant role %I.', mbus._consume_role(p_queue.name, p_consumer));
  end if;
end $$;
