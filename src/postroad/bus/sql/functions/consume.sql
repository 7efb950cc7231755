-- Dispatchers for hstore queues, with the caller's permissions.  Queues with other payloads have other row types, so their messages are
-- taken with the queue's own functions.

create or replace function mbus._check_dispatch(p_queue text, p_consumer text, p_function text) returns void
language plpgsql stable security definer set search_path from current as $$
declare
  v_queue mbus.queue := mbus._queue(p_queue);
  v_function oid;
begin
  if p_consumer is not null then perform mbus._consumer(v_queue, p_consumer); end if;
  select p.oid into v_function from pg_proc p
  where p.pronamespace = 'mbus'::regnamespace and p.proname = p_function;
  if not has_function_privilege(session_user, v_function, 'execute') then
    raise exception 'user "%" may not take messages from queue "%"', session_user, p_queue
      using errcode = 'MB013', hint = format('Grant role %I.', coalesce(mbus._consume_role(p_queue, p_consumer), mbus._role('admin')));
  end if;
  if v_queue.payload <> 'hstore' then
    raise exception 'queue "%" carries %, which has a row type of its own', p_queue, v_queue.payload
      using errcode = 'MB019', hint = format('Call mbus.%I.', p_function);
  end if;
end $$;

-- Raises MB002 unless the temporary consumer belongs to the queue.
create or replace function mbus._check_temporary_consumer(p_queue text, p_name text) returns void
language plpgsql stable security definer set search_path from current as $$
begin
  if not exists (select from mbus.follower f where f.queue_id = (mbus._queue(p_queue)).id and f.temporary_name = p_name) then
    raise exception 'queue "%" has no temporary consumer "%"', p_queue, p_name
      using errcode = 'MB002', hint = 'Create it with mbus.create_temporary_consumer; it ends with its session.';
  end if;
end $$;

-- Takes one message of a consumer in the caller's transaction, or nothing.  The consumer may be a temporary one of this session.
-- A temporary queue has no consumers except the session that created it; see mbus.consume_temporary.
-- Errors: MB001, MB002, MB013 role, MB014 isolation, MB019 payload.
create or replace function mbus.consume(qname text, cname text default 'default') returns setof mbus.qt_model
language plpgsql set search_path from current rows 1 as $$
declare
  v_function constant text := 'consume_' || qname || '_by_' || cname;
begin
  if mbus._is_temporary(qname) then
    return query select * from mbus.consume_temporary(qname);
    return;
  end if;
  if mbus._is_temporary(cname) then
    perform mbus._check_temporary_consumer(qname, cname);
    return query select * from mbus.consume_temporary(cname);
    return;
  end if;
  perform mbus._check_dispatch(qname, coalesce(cname, 'null'), v_function);
  return query execute format('select * from mbus.%I()', v_function);
end $$;

-- Takes the message with this iid from all its consumers: ready, delayed, leased or dead.  Blocks while another
-- transaction holds it; returns no row if it does not exist.
-- Errors: MB001, MB009 foreign iid, MB013 role, MB014 isolation, MB019 payload.
create or replace function mbus.take(iid text) returns setof mbus.qt_model
language plpgsql set search_path from current rows 1 as $$
declare
  v_queue constant text := split_part(coalesce(iid, ''), '.', 1);
begin
  if v_queue = '' then
    raise exception 'invalid iid: "%"', coalesce(iid, 'null') using errcode = 'MB009', hint = 'Use the form orders.4711@k3f9q2.';
  end if;
  perform mbus._check_dispatch(v_queue, null, 'take_' || v_queue);
  return query execute format('select * from mbus.%I($1)', 'take_' || v_queue) using iid;
end $$;
