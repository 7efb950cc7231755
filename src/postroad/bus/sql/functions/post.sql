-- Dispatchers for a queue whose name is an argument.  They run with the caller's permissions and call the queue's own
-- function, so the permissions on that function decide.

-- The payload of the queue, null for a temporary one.
-- Raises MB001 for an unknown queue and MB013 for a caller without permission.
create or replace function mbus._check_post(p_queue text) returns text
language plpgsql stable security definer set search_path from current as $$
declare
  v_queue mbus.queue;
  v_function oid;
begin
  if mbus._is_temporary(p_queue) then return null; end if;
  v_queue := mbus._queue(p_queue);
  select p.oid into v_function from pg_proc p
  where p.pronamespace = 'mbus'::regnamespace and p.proname = 'post_' || p_queue;
  if not has_function_privilege(session_user, v_function, 'execute') then
    raise exception 'user "%" may not post to queue "%"', session_user, p_queue
      using errcode = 'MB013', hint = format('Grant role %I.', mbus._post_role(p_queue));
  end if;
  return v_queue.payload;
end $$;

create or replace function mbus._refuse_payload(p_queue text, p_payload text, p_given text) returns void
language plpgsql immutable set search_path from current as $$
begin
  raise exception 'queue "%" carries %, not %', p_queue, p_payload, p_given
    using errcode = 'MB011', hint = format('Cast the data to %s.', p_payload);
end $$;

-- Posts one message in the caller's transaction and returns its iid.  The data has the type of the queue's payload; a text is
-- converted to that type.
-- Headers with a meaning for the bus: priority (high, normal, low), group, dedup_key and dedup_window (default 1 hour), unique_key,
-- unique_until (done, taken), debounce and max_debounce (intervals), consume_after and consume_after_lost, reply_to; seenby, source_db and enqueue_time of a forwarded message.
-- Other headers are delivered unchanged.
-- Errors: MB001, MB009 foreign iid, MB010 duplicate iid, MB011 payload, MB012 argument, MB013 role.
create or replace function mbus.post(
  qname text, data anycompatible, headers hstore default null, properties hstore default null,
  delayed_until timestamptz default null, expires timestamptz default null, iid text default null) returns text
language plpgsql set search_path from current as $$
declare
  v_payload constant text := mbus._check_post(qname);
  v_given   constant text := mbus._type_of(pg_typeof(data));
  v_iid     text;
begin
  if v_payload is null then
    return mbus._post_temporary(qname, v_given, data::text, headers, properties, delayed_until, expires, iid);
  end if;
  if v_given not in ('text', v_payload) then perform mbus._refuse_payload(qname, v_payload, v_given); end if;
  execute format('select mbus.%I(%s, $2, $3, $4, $5, $6)', 'post_' || qname,
                 case v_given when v_payload then '$1' else format('mbus._read($1::text, null::%s)', v_payload) end)
    into v_iid using data, headers, properties, delayed_until, expires, iid;
  return v_iid;
end $$;

-- The name of a type; text for each type of strings.
create or replace function mbus._type_of(p_type regtype) returns text
language sql stable set search_path from current as $$
  select case t.typcategory when 'S' then 'text' else p_type::text end from pg_type t where t.oid = p_type
$$;

-- Converts a text to the type of a payload; invalid text raises MB011.
create or replace function mbus._read(p_text text, p_type anyelement) returns anyelement
language plpgsql immutable set search_path from current as $$
begin
  p_type := p_text;    -- a returned value would be converted outside the block
  return p_type;
-- Before PostgreSQL 16 hstore reports bad syntax as an internal error.
exception when data_exception or syntax_error or internal_error then
  raise exception 'invalid % syntax', case pg_typeof(p_type)::text when 'jsonb' then 'JSON' else pg_typeof(p_type)::text end
    using errcode = 'MB011', detail = sqlerrm, hint = case pg_typeof(p_type)::text
      when 'hstore' then 'Write key=>value pairs.' when 'jsonb' then 'Write valid JSON.' else 'Write \x and hexadecimal digits.' end;
end $$;

-- Reserves an iid: post the message under it later, in this or another transaction.
create or replace function mbus.get_iid(qname text) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_queue  mbus.queue := mbus._queue(qname);
  v_number bigint;
begin
  perform mbus._check_post(qname);
  v_number := nextval(v_queue.position);
  insert into mbus.reserved (queue_id, number, reserved_at) values (v_queue.id, v_number, mbus.now());
  return mbus._iid(qname, v_number);
end $$;
