-- Calls of a lease's holder.  The token is the fence: each lease has a new one, and a call for a lease that has ended
-- raises MB015, whether or not another worker has the message.

create or replace function mbus._check_ttl(p_ttl interval) returns interval
language plpgsql immutable set search_path from current as $$
begin
  if p_ttl is null or p_ttl <= '0' or p_ttl > mbus._longest() then
    raise exception 'invalid lease time: %', coalesce(p_ttl::text, 'null')
      using errcode = 'MB012', hint = 'A lease must be longer than zero and at most 1000 years.';
  end if;
  return p_ttl;
end $$;

-- Returns the lease, locked, if its holder still holds it.  Users without any permission on the queue get MB013 before the lease
-- is searched, so that neither iids nor tokens can be probed.
create or replace function mbus._held(p_iid text, p_token bigint) returns mbus.leased
language plpgsql set search_path from current as $$
declare
  v_lease mbus.leased;
  v_queue mbus.queue := mbus._queue(split_part(coalesce(p_iid, ''), '.', 1));
begin
  if not exists (select from mbus.consumer c where c.queue_id = v_queue.id and mbus._may_consume(v_queue, c.name)) then
    perform mbus._check_consume(v_queue, 'default');
  end if;
  select l.* into v_lease from mbus.leased l
  where l.token = p_token and l.queue_id = v_queue.id and l.number = mbus._number(v_queue.name, p_iid)
  for update;
  if not found or v_lease.leased_until <= mbus.now() then
    raise exception 'the lease % of message "%" has ended', p_token, p_iid
      using errcode = 'MB015', hint = 'Another worker may have the message. Discard the work; extend leases earlier.';
  end if;
  perform mbus._check_consume(v_queue, (select name from mbus.consumer where id = v_lease.consumer_id));
  return v_lease;
end $$;

-- Consumes a leased message.
create or replace function mbus.ack(iid text, token bigint) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_lease mbus.leased := mbus._held(iid, token);
begin
  delete from mbus.leased l where l.token = v_lease.token;
  perform mbus._tally(v_lease.consumer_id, 'consumed', 1);
  perform mbus._taken(v_lease.queue_id, v_lease.consumer_id, v_lease.number);
end $$;

-- Consumes many leased messages.  Returns the iids whose lease had ended; the others are consumed.
create or replace function mbus.ackn(iids text[], tokens bigint[]) returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_acked bigint[];
  v_notes bigint;
begin
  tokens := mbus._check_holders(iids, tokens);
  with done as (
    delete from mbus.leased l where l.token = any (tokens) and l.leased_until > mbus.now()
    returning l.token, l.queue_id, l.consumer_id, l.number)
  , noted as (
    select mbus._done(w.queue_id, w.consumer_id, w.numbers)
    from (select d.queue_id, d.consumer_id, array_agg(d.number) as numbers
          from done d join mbus.queue q on q.id = d.queue_id and q.has_waiters group by 1, 2) w)
  , counted as (
    select mbus._tally(d.consumer_id, 'consumed', count(*)) from done d group by d.consumer_id)
  select array_agg(d.token), (select count(*) from noted) + (select count(*) from counted) into v_acked, v_notes from done d;
  return mbus._unheld(iids, tokens, v_acked);
end $$;

-- The tokens, null if a token belongs to another message than its iid.  Raises MB012, MB013.
create or replace function mbus._check_holders(p_iids text[], p_tokens bigint[]) returns bigint[]
language plpgsql stable set search_path from current as $$
declare
  v_tokens bigint[];
begin
  if cardinality(p_iids) is distinct from cardinality(p_tokens) then
    raise exception '% iids and % tokens', coalesce(cardinality(p_iids), 0), coalesce(cardinality(p_tokens), 0)
      using errcode = 'MB012', hint = 'Pass one token per iid.';
  end if;
  perform mbus._check_consume(q, c.name)
  from (select distinct l.queue_id, l.consumer_id from mbus.leased l where l.token = any (p_tokens)) h
  join mbus.queue q on q.id = h.queue_id join mbus.consumer c on c.id = h.consumer_id;
  with held as materialized (
    select l.token, q.name || '.' || l.number || '@' || n.name as iid
    from mbus.leased l join mbus.queue q on q.id = l.queue_id cross join mbus.node n where l.token = any (p_tokens))
  select array_agg(h.token order by u.place) into v_tokens
  from unnest(p_iids, p_tokens) with ordinality u(iid, token, place)
  left join held h on h.token = u.token and h.iid = u.iid;
  return coalesce(v_tokens, '{}');
end $$;

-- The iids whose token is not among the held ones.
create or replace function mbus._unheld(p_iids text[], p_tokens bigint[], p_held bigint[]) returns text[]
language sql immutable set search_path from current as $$
  select array(select u.iid from unnest(p_iids, p_tokens) with ordinality u(iid, token, place)
               where u.token is null or u.token <> all (coalesce(p_held, '{}')) order by u.place)
$$;

-- Reports a failed attempt: the message is ready again, delayed, or dead.  Returns 'ready', 'delayed' or 'dmq'.
-- delay null: the consumer's backoff.  park: to the dmq without further attempts.
create or replace function mbus.nack(
  iid text, token bigint, delay interval default null, error text default null, park boolean default false)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_lease mbus.leased := mbus._held(iid, token);
begin
  perform mbus._check_delay(delay);
  delete from mbus.leased l where l.token = v_lease.token;
  return mbus._give_back(v_lease.consumer_id, mbus._parcel(v_lease), delay, error, park);
end $$;

create or replace function mbus._check_delay(p_delay interval) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_delay < '0' or p_delay > mbus._longest() then
    raise exception 'invalid delay: %', p_delay
      using errcode = 'MB012', hint = 'A delay must be between zero and 1000 years.';
  end if;
end $$;

-- Extends a lease until now + ttl.
create or replace function mbus.extend(iid text, token bigint, ttl interval default '30 seconds') returns timestamptz
language plpgsql security definer set search_path from current as $$
declare
  v_lease mbus.leased := mbus._held(iid, token);
  v_until constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
begin
  update mbus.leased l set leased_until = v_until where l.token = v_lease.token;
  return v_until;
end $$;

-- Extends many leases.  Returns the iids whose lease had ended.
create or replace function mbus.extendn(iids text[], tokens bigint[], ttl interval default '30 seconds') returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_until constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
  v_held  bigint[];
begin
  tokens := mbus._check_holders(iids, tokens);
  with kept as (
    update mbus.leased l set leased_until = v_until
    where l.token = any (tokens) and l.leased_until > mbus.now() returning l.token)
  select array_agg(k.token) into v_held from kept k;
  return mbus._unheld(iids, tokens, v_held);
end $$;

-- For a handler that failed and rolled its transaction back: takes the message and handles it as nack does.
-- Returns 'ready', 'delayed', 'dmq', or 'absent' if the message does not exist any more, is leased or dead.
-- Errors: MB001, MB002, MB009 foreign iid, MB012 delay, MB013 role, MB014 isolation, MB025 taken by this transaction.
create or replace function mbus.reject(
  qname text, cname text, iid text, delay interval default null, error text default null, park boolean default false)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_number   constant bigint := mbus._number(qname, iid);
  v_parcel   mbus.parcel;
begin
  perform mbus._check_consume(v_queue, cname);
  perform mbus._check_delay(delay);
  select * into v_parcel from mbus._take_number(v_queue.id, v_consumer.id, v_number, true) limit 1;
  if not found then
    if mbus._state(v_queue, v_consumer.id, v_number) = 'gone' then
      perform mbus._check_not_taken_here(v_consumer.id, v_number, iid);
    end if;
    return 'absent';
  end if;
  v_parcel.trail := mbus._tried(v_parcel.trail);
  return mbus._give_back(v_consumer.id, v_parcel, delay, error, park);
end $$;

-- For a handler that failed and keeps its transaction: gives back a message that this transaction took, as mbus.consume or
-- another function returned it, and handles it as nack does.  Returns 'ready', 'delayed' or 'dmq'.
--   message  the row, of type mbus.qt_model or that of the queue's payload; its data, headers and properties may be changed
-- Errors: MB001, MB002, MB009 foreign iid, MB011 row type, MB012 argument, MB013 role, MB014 isolation, MB026 not taken by
-- this transaction.
create or replace function mbus.give_back(
  cname text, message anyelement, delay interval default null, error text default null, park boolean default false)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue;
  v_consumer mbus.consumer;
  v_parcel   mbus.parcel;
  v_headers  hstore;
begin
  if pg_typeof(message) <> all ('{mbus.qt_model,mbus.qt_model_jsonb,mbus.qt_model_text,mbus.qt_model_bytea}'::regtype[]) then
    raise exception 'type % is not the row type of a message', pg_typeof(message)
      using errcode = 'MB011', hint = 'Pass the row that mbus.consume returned; give a leased message back with mbus.nack.';
  elsif message is not distinct from null then
    raise exception 'there is no message' using errcode = 'MB012', hint = 'Pass the row that mbus.consume returned.';
  end if;
  if message.iid is null then perform mbus._number('null', null); end if;
  v_queue := mbus._queue(split_part(message.iid, '.', 1));
  v_consumer := mbus._consumer(v_queue, coalesce(cname, 'null'));
  if pg_typeof(message.data)::text <> v_queue.payload then
    perform mbus._refuse_payload(v_queue.name, v_queue.payload, pg_typeof(message.data)::text);
  end if;
  perform mbus._check_isolation();
  perform mbus._check_consume(v_queue, cname);
  perform mbus._check_delay(delay);
  perform mbus._check_time('added', message.added), mbus._check_time('expires', message.expires);
  v_parcel.number := mbus._number(v_queue.name, message.iid);
  select t.trail into v_parcel.trail from mbus._taken_here() t where t.consumer_id = v_consumer.id and t.number = v_parcel.number;
  if not found or mbus._state(v_queue, v_consumer.id, v_parcel.number) <> 'gone' then
    raise exception 'message "%" was not taken by this transaction as "%"', message.iid, cname
      using errcode = 'MB026', hint = 'After a rollback call mbus.reject, after a lease mbus.nack.';
  end if;
  -- The headers that delivery adds are omitted; see mbus._deliver.
  v_headers := delete(delete(message.headers, mbus._constants(v_queue)), 'attempts'::text);
  v_parcel.headers := nullif(delete(v_headers, hstore('enqueue_time', message.added::text)), '');
  perform mbus._accept_headers(v_queue, delete(v_parcel.headers, 'seenby'::text));
  v_parcel.added := coalesce(message.added, mbus.now());
  v_parcel.expires := message.expires;
  v_parcel.properties := message.properties;
  v_parcel := mbus._load(v_parcel, message.data);
  if v_queue.has_waiters then
    perform mbus._posted(v_queue, v_parcel.number, array[v_consumer.id]);
  end if;
  v_parcel.trail := mbus._tried(v_parcel.trail);
  perform mbus._tally(v_consumer.id, 'consumed', -1);
  return mbus._give_back(v_consumer.id, v_parcel, delay, error, park);
end $$;
