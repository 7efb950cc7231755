-- Temporary queues and temporary consumers: rows that belong to a session and end with it.  See internal/temporary.sql.

-- Creates a queue that only this session can take from, and that every user who has its name may post to.
-- Others can use it when the caller's transaction has committed; it is removed when the session ends.
-- Errors: MB011 payload.
create or replace function mbus.create_temporary_queue(payload regtype default 'hstore') returns text
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._check_payload(payload);
  return mbus._add_temporary_queue(payload::text);
end $$;

-- Gives this session a copy of each message that is posted to a queue from now on and matches the selector.
-- Returns the name of the temporary queue of the copies.
-- The caller needs permission to consume as consumer default, now and whenever it takes copies; messages that do not match
-- the selector of that consumer are not copied.
-- A selector is evaluated in the producer's transaction with the permissions of the owner of the bus, so only
-- members of mbus_<db>_admin may use one.  If it raises an error the post does not fail: the copy has the error
-- in header selector_error.
-- Errors: MB001, MB008 selector, MB013 role, MB017 busy.
create or replace function mbus.create_temporary_consumer(qname text, selector text default null) returns text
language plpgsql security definer set search_path from current set lock_timeout = '10s' as $$
declare
  v_queue mbus.queue := mbus._queue(qname);
  v_name  text;
begin
  perform mbus._check_consume(v_queue, 'default');
  if selector is not null then
    if not mbus._is_admin() then
      raise exception 'user "%" may not give a temporary consumer a selector', session_user
        using errcode = 'MB013', hint = format('Grant role %I.', mbus._role('admin'));
    end if;
    perform mbus._check_selector(v_queue, selector);
  end if;
  if not v_queue.has_followers then
    perform mbus._add_feature(v_queue.id, 'followers');
  end if;
  v_name := mbus._add_temporary_queue(v_queue.payload);
  insert into mbus.follower (queue_id, temporary_name, selector) values (v_queue.id, v_name, selector);
  return v_name;
exception when lock_not_available or deadlock_detected then
  raise exception 'queue "%" is busy: its definition is being changed', qname using errcode = 'MB017', hint = 'Try again.';
end $$;

-- Takes up to amt messages of a temporary queue in the caller's transaction, in order of posting.  With wait, polls
-- until there is one or the time is over; a transaction that waits long prevents dead rows from being removed.
-- Each payload has its own function, because the row types differ.
-- Errors: MB001 no such queue, MB012 argument, MB013 the queue of another session, MB014 isolation, MB019 other payload.
create or replace function mbus.consume_temporary(qname text, amt integer default 1, wait interval default '0') returns setof mbus.qt_model
language plpgsql security definer set search_path from current rows 100 as $$
begin
  return query select p.number, p.added, mbus._iid(qname, p.number), (p.trail ->> 'delayed_until')::timestamptz, p.expires,
         null::integer[], mbus._deliver_temporary(qname, p), p.properties, p.data_hstore
  from mbus._consume_temporary(qname, 'hstore', amt, wait) p;
end $$;

create or replace function mbus.consume_temporary_jsonb(qname text, amt integer default 1, wait interval default '0')
returns setof mbus.qt_model_jsonb
language plpgsql security definer set search_path from current rows 100 as $$
begin
  return query select p.number, p.added, mbus._iid(qname, p.number), (p.trail ->> 'delayed_until')::timestamptz, p.expires,
         null::integer[], mbus._deliver_temporary(qname, p), p.properties, p.data_jsonb
  from mbus._consume_temporary(qname, 'jsonb', amt, wait) p;
end $$;

create or replace function mbus.consume_temporary_text(qname text, amt integer default 1, wait interval default '0')
returns setof mbus.qt_model_text
language plpgsql security definer set search_path from current rows 100 as $$
begin
  return query select p.number, p.added, mbus._iid(qname, p.number), (p.trail ->> 'delayed_until')::timestamptz, p.expires,
         null::integer[], mbus._deliver_temporary(qname, p), p.properties, p.data_text
  from mbus._consume_temporary(qname, 'text', amt, wait) p;
end $$;

create or replace function mbus.consume_temporary_bytea(qname text, amt integer default 1, wait interval default '0')
returns setof mbus.qt_model_bytea
language plpgsql security definer set search_path from current rows 100 as $$
begin
  return query select p.number, p.added, mbus._iid(qname, p.number), (p.trail ->> 'delayed_until')::timestamptz, p.expires,
         null::integer[], mbus._deliver_temporary(qname, p), p.properties, p.data_bytea
  from mbus._consume_temporary(qname, 'bytea', amt, wait) p;
end $$;

-- Removes the temporary queues of ended sessions, with their messages and followers, and returns their number.  Maintenance does the same.
create or replace function mbus.clear_tempq() returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_names text[];
  v_slot  integer;
begin
  with live as materialized (
    select l.objid::bigint as pid from pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 2
      and l.classid::bigint = mbus._session_class() & 4294967295::bigint
      and l.database = (select oid from pg_database where datname = current_database())),
  gone as (
    delete from mbus.temporary_queue q
    where q.name in (select t.name from mbus.temporary_queue t
                     where t.pid not in (select pid from live) limit 10000 for update skip locked)
    returning q.name)
  select array_agg(g.name) into v_names from gone g;
  if v_names is null then return 0; end if;
  for v_slot in select * from mbus._tempq_slots() loop
    execute format('delete from mbus.tempq_%s s where s.destination = any ($1)', v_slot) using v_names;
  end loop;
  return cardinality(v_names);
end $$;

-- Posts to a temporary queue; called by mbus.post.  The data is the text of a value of type p_given, which must be the payload
-- type of the queue; a plain text is converted to that type.
create or replace function mbus._post_temporary(
  p_name text, p_given text, p_data text, p_headers hstore, p_properties hstore, p_delayed_until timestamptz,
  p_expires timestamptz, p_iid text) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_queue   mbus.temporary_queue := mbus._temporary_queue(p_name);
  v_payload constant text := coalesce(v_queue.payload, p_given);    -- a queue for answers carries any payload
begin
  if v_queue.name is null then perform mbus._refuse_gone(p_name); end if;
  if p_iid is not null then
    raise exception 'iid "%" was not issued for queue "%"', p_iid, p_name
      using errcode = 'MB009', hint = 'Messages of temporary queues get their iid when they are posted.';
  end if;
  perform mbus._check_expiry(p_delayed_until, p_expires);
  if p_given not in ('text', v_payload) or v_payload not in ('hstore', 'jsonb', 'text', 'bytea') then
    perform mbus._refuse_payload(p_name, v_payload, p_given);
  end if;
  return mbus._iid(p_name, (mbus._temporary_put(array[p_name], array[row(null, mbus.now(), p_expires, p_headers, p_properties,
    case when p_delayed_until is not null then jsonb_build_object('delayed_until', p_delayed_until) end, null,
    case v_payload when 'hstore' then mbus._read(p_data, null::hstore) end,
    case v_payload when 'jsonb' then mbus._read(p_data, null::jsonb) end,
    case v_payload when 'text' then p_data end,
    case v_payload when 'bytea' then mbus._read(p_data, null::bytea) end)::mbus.parcel]))[1]);
end $$;
