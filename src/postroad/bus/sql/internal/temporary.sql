-- A session that creates a temporary queue holds an advisory lock on its pid until it ends.  Every session can
-- see that lock, unlike pg_stat_activity, and the server releases it however the session ends.

create or replace function mbus._session_class() returns integer
language sql immutable parallel safe set search_path from current as $$ select hashtext('mbus.session') $$;

-- The name of this session, null if it has not created a temporary queue.
create or replace function mbus._session() returns uuid
language sql stable set search_path from current as $$
  select case when name ~ '^[0-9a-f-]{36}$' then name::uuid end from current_setting('mbus.session', true) name
$$;

-- True when the session with this pid has ended, or has never created a temporary queue.
create or replace function mbus._is_session_gone(p_pid integer) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  if p_pid = pg_backend_pid() or not pg_try_advisory_lock_shared(mbus._session_class(), p_pid) then
    return false;
  end if;
  perform pg_advisory_unlock_shared(mbus._session_class(), p_pid);
  return true;
end $$;

create or replace function mbus._is_temporary(p_name text) returns boolean
language sql immutable parallel safe return starts_with(p_name, 'temp.');

-- Registers this session, also for broker.adopt_queue.  Its pid may have belonged to an ended session, whose temporary queues are deleted.
create or replace function mbus._register_session() returns uuid
language plpgsql set search_path from current as $$
declare
  v_session uuid := mbus._session();
begin
  -- Locked each time, because the user may have called pg_advisory_unlock_all; taking a held lock again is cheap.
  perform pg_advisory_lock(mbus._session_class(), pg_backend_pid());
  if v_session is null then
    v_session := gen_random_uuid();
    perform set_config('mbus.session', v_session::text, false);
    delete from mbus.temporary_queue q where q.pid = pg_backend_pid();
  end if;
  return v_session;
end $$;

create or replace function mbus._add_temporary_queue(p_payload text) returns text
language plpgsql set search_path from current as $$
declare
  v_session constant uuid := mbus._register_session();
  v_name    constant text := 'temp.' || left(encode(sha256(uuid_send(gen_random_uuid())), 'hex'), 16);
begin
  insert into mbus.temporary_queue (name, session, pid, payload)
  values (v_name, v_session, pg_backend_pid(), p_payload);
  return v_name;
end $$;

-- Returns the queue, null if it was removed or its session has ended.
create or replace function mbus._temporary_queue(p_name text) returns mbus.temporary_queue
language plpgsql volatile set search_path from current as $$
declare
  v_queue mbus.temporary_queue;
begin
  select * into v_queue from mbus.temporary_queue q where q.name = p_name;
  if not found or mbus._is_session_gone(v_queue.pid) then return null; end if;
  return v_queue;
end $$;

create or replace function mbus._refuse_gone(p_name text) returns void
language plpgsql immutable set search_path from current as $$
begin
  raise exception 'temporary queue "%" does not exist', p_name
    using errcode = 'MB001', hint = 'A temporary queue ends with the session that created it.';
end $$;
