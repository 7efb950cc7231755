-- Calls of a lease's holder.  The token is the fence: each lease has a new one, and a call for a lease that has ended
-- raises MB015, whether or not another worker has the message.

create or replace function mbus._check_ttl(p_ttl interval) returns interval
language plpgsql immutable set search_path from current as $$
begin
  perform mbus._check_interval('lease time', p_ttl, true, 'A lease must be longer than zero and at most 1000 years.');
  return p_ttl;
end $$;

-- Raises the error for an answer that cannot be accepted.  Users without any right on the queue get MB013, so that neither iids nor tokens
-- can be probed.
create or replace function mbus._refuse_answer(p_iid text, p_token bigint) returns void
language plpgsql stable set search_path from current as $$
declare
  v_queue mbus.queue := mbus._queue(split_part(coalesce(p_iid, ''), '.', 1));
begin
  if not exists (select from mbus.consumer c where c.queue_id = v_queue.id and mbus._may_consume(v_queue, c.name)) then
    perform mbus._check_consume(v_queue, 'default');
  end if;
  perform mbus._number(v_queue.name, p_iid);
  raise exception 'the lease % of message "%" has ended', p_token, p_iid
    using errcode = 'MB015', hint = 'Another worker may have the message. Discard the work; extend leases earlier.';
end $$;

-- True for a consumer whose leases the user may answer: those that the user may lease.  Raises MB013.
create or replace function mbus._check_holder(p_queue mbus.queue, p_consumer mbus.consumer) returns boolean
language plpgsql stable set search_path from current as $$
begin
  -- The first condition is faster than the check, which names the missing role.
  if has_function_privilege(session_user, format('mbus.%I(integer, interval)', 'lease_' || p_queue.name || '_by_' || p_consumer.name), 'execute')
     or mbus._may_consume(p_queue, p_consumer.name) then
    return true;
  end if;
  -- The ids of several consumers may end with the same bits; then the consumer is one that the user may consume as.
  if not exists (select from mbus.consumer c where c.queue_id = p_consumer.queue_id and c.id & 255 = p_consumer.id & 255
                   and mbus._may_consume(p_queue, c.name)) then
    perform mbus._check_consume(p_queue, p_consumer.name);
  end if;
  return false;
end $$;

-- Leases by consumer.  Tokens are a number drawn from mbus.lease_token * 2^18 + the last 8 bits of the consumer's
-- id * 2^10 + the cell of the ring that the message was leased in; in earlier versions they were the numbers themselves.
-- 1023 is not a cell but marks a lease in mbus.leased.  Raises MB013.
create or replace function mbus._claims(p_iids text[], p_tokens bigint[])
returns table (queue mbus.queue, consumer mbus.consumer, iids text[], numbers bigint[], tokens bigint[])
language sql stable rows 1 set search_path from current set enable_seqscan = off set jit = off as $$
  select k.*
  from (
    select q, c, h.iids, h.numbers, h.tokens
    from (
      select u.queue, l.consumer_id, u.token >> 10 & 255 as holder,
             array_agg(u.iid) as iids, array_agg(u.digits::bigint) as numbers, array_agg(u.token) as tokens
      from (select i.iid, i.token, split_part(i.iid, '.', 1) as queue, split_part(split_part(i.iid, '.', 2), '@', 1) as digits
            from unnest(p_iids, p_tokens) i(iid, token)) u
      left join lateral (select h.token, h.consumer_id from mbus.leased h where h.token = u.token offset 0) l on true
      where length(u.digits) between 1 and 18 and left(u.digits, 1) <> '0' and ltrim(u.digits, '0123456789') = ''
        and u.iid = u.queue || '.' || u.digits || (select '@' || n.name from mbus.node n where n.is_only)
        and (l.token is not null or u.token & 1023 <> 1023)
      group by 1, 2, 3) h
    join mbus.queue q on q.name = h.queue
    join mbus.consumer c on c.queue_id = q.id and (c.id = h.consumer_id or h.consumer_id is null and c.id & 255 = h.holder)
    offset 0) k    -- only the consumers of these leases are checked
  where mbus._check_holder(k.q, k.c)
$$;

-- Ends leases (p_until null), or extends them, wherever the messages are now.  Returns the tokens of those that were held.
create or replace function mbus._answer(
  p_queue mbus.queue, p_consumer_id integer, p_numbers bigint[], p_tokens bigint[], p_until timestamptz) returns bigint[]
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_table text;
  v_found bigint[];
  v_held  bigint[] := '{}';
begin
  for v_table in select t.ready_table from mbus._claim_tables(p_queue, p_consumer_id) t loop
    execute format($query$
      with held as (
        %s
        where (s.id = any ($1) and s.origin is null or s.origin = any ($1)) and s.leased_until > $3
          and (coalesce(s.origin, s.id), s.token) in (select * from unnest($1, $2))
        returning s.token)
      select array_agg(h.token) from held h$query$,
      format(case when p_until is null then 'delete from mbus.%I s' else 'update mbus.%I s set leased_until = $4' end, v_table))
    into v_found using p_numbers, p_tokens, mbus.now(), p_until;
    v_held := v_held || v_found;
    if cardinality(v_held) = cardinality(p_tokens) then return v_held; end if;
  end loop;
  execute format($query$
    with held as (
      %s
      where l.token = any ($2) and l.consumer_id = $5 and (l.number, l.token) in (select * from unnest($1, $2)) and l.leased_until > $3
      returning l.token)
    select array_agg(h.token) from held h$query$,
    case when p_until is null then 'delete from mbus.leased l' else 'update mbus.leased l set leased_until = $4' end)
  into v_found using p_numbers, p_tokens, mbus.now(), p_until, p_consumer_id;
  return v_held || v_found;
end $$;

-- Consumes a leased message.
create or replace function mbus.ack(iid text, token bigint) returns void
language plpgsql security definer set search_path from current as $$
begin
  if mbus.ackn(array[iid], array[token]) <> '{}' then perform mbus._refuse_answer(iid, token); end if;
end $$;

-- Consumes many leased messages.  Returns the iids whose lease had ended; the others are consumed.
-- If all belong to one consumer, ackn_<q>_by_<c> is faster.
create or replace function mbus.ackn(iids text[], tokens bigint[]) returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_claims record;
  v_lost   bigint[];
  v_acked  bigint[] := '{}';
begin
  perform mbus._check_tokens(iids, tokens);
  for v_claims in select * from mbus._claims(iids, tokens) loop
    execute format('select mbus.%I($1, $2)', 'ackn_' || (v_claims.queue).name || '_by_' || (v_claims.consumer).name)
    into v_lost using v_claims.iids, v_claims.tokens;
    v_acked := v_acked || array(select unnest(v_claims.tokens) except select unnest(v_lost));
  end loop;
  return mbus._unheld(iids, tokens, v_acked);
end $$;

-- The slow part of ackn_<q>_by_<c>: consumes the messages that have moved since they were leased.  Returns the tokens of leases that had
-- ended.
create or replace function mbus._ack_moved(
  p_queue_id integer, p_consumer_id integer, p_numbers bigint[], p_tokens bigint[], p_acked bigint[]) returns bigint[]
language plpgsql set search_path from current as $$
declare
  v_found bigint[];
begin
  select mbus._answer(q, p_consumer_id, p_numbers, p_tokens, null) into v_found from mbus.queue q where q.id = p_queue_id;
  perform mbus._tally(p_consumer_id, 'consumed', cardinality(v_found));
  perform mbus._done(q.id, p_consumer_id, array(
    select u.number from unnest(p_numbers, p_tokens) u(number, token) where u.token = any (v_found)))
  from mbus.queue q where q.id = p_queue_id and q.has_waiters;
  return array(select u.token from unnest(p_tokens) u(token) where u.token is null or u.token <> all (p_acked || v_found));
end $$;

create or replace function mbus._check_tokens(p_iids text[], p_tokens bigint[]) returns void
language plpgsql immutable set search_path from current as $$
begin
  if cardinality(p_iids) is distinct from cardinality(p_tokens) then
    raise exception '% iids and % tokens', coalesce(cardinality(p_iids), 0), coalesce(cardinality(p_tokens), 0)
      using errcode = 'MB012', hint = 'Pass one token per iid.';
  end if;
end $$;

-- The iids whose token is not in the list of held tokens.
create or replace function mbus._unheld(p_iids text[], p_tokens bigint[], p_held bigint[]) returns text[]
language sql immutable set search_path from current as $$
  select array(select u.iid from unnest(p_iids, p_tokens) with ordinality u(iid, token, place)
               where u.token is null or u.token <> all (coalesce(p_held, '{}')) order by u.place)
$$;

-- Takes a leased message from its holder; the recipient of the parcel is the consumer.  Raises MB013, MB015.
create or replace function mbus._take_held(p_iid text, p_token bigint) returns mbus.parcel
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_claim  record;
  v_table  record;
  v_taken  record;
  v_lease  mbus.leased;
  v_parcel mbus.parcel;
begin
  for v_claim in select * from mbus._claims(array[p_iid], array[p_token]) loop
    for v_table in select * from mbus._claim_tables(v_claim.queue, (v_claim.consumer).id) loop
      execute mbus._take_query(v_claim.queue, v_table.ready_table, v_table.payload_table,
        '(s.id = $2 and s.origin is null or s.origin = $2) and s.token = $3 and s.leased_until > $4')
      into v_taken using array[(v_claim.consumer).id], v_claim.numbers[1], p_token, mbus.now();
      continue when v_taken.parcel is null;
      return mbus._tried(v_taken.parcel);
    end loop;
    delete from mbus.leased l
    where l.token = p_token and l.consumer_id = (v_claim.consumer).id and l.number = v_claim.numbers[1] and l.leased_until > mbus.now()
    returning l.* into v_lease;
    if found then
      v_parcel := mbus._parcel(v_lease);
      v_parcel.recipients := array[v_lease.consumer_id];
      return v_parcel;
    end if;
  end loop;
  perform mbus._refuse_answer(p_iid, p_token);
end $$;

-- Gives a leased message back after a failure: it is ready again, delayed, or dead.  Returns 'ready', 'delayed' or 'dmq'.
-- delay null: the consumer's backoff.  park: to the dmq without further attempts.
create or replace function mbus.nack(
  iid text, token bigint, delay interval default null, error text default null, park boolean default false) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_parcel mbus.parcel := mbus._take_held(iid, token);
begin
  perform mbus._check_interval('delay', delay, false, 'A delay must be between zero and 1000 years.');
  return mbus._give_back(v_parcel.recipients[1], v_parcel, delay, error, park);
end $$;

-- Extends a lease until now + ttl.
create or replace function mbus.extend(iid text, token bigint, ttl interval default '30 seconds') returns timestamptz
language plpgsql security definer set search_path from current as $$
declare
  v_until constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
begin
  if mbus.extendn(array[iid], array[token], ttl) <> '{}' then perform mbus._refuse_answer(iid, token); end if;
  return v_until;
end $$;

-- Extends many leases.  Returns the iids whose lease had ended.
create or replace function mbus.extendn(iids text[], tokens bigint[], ttl interval default '30 seconds') returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_until  constant timestamptz := mbus.now() + mbus._check_ttl(ttl);
  v_claims record;
  v_held   bigint[] := '{}';
begin
  perform mbus._check_tokens(iids, tokens);
  for v_claims in select * from mbus._claims(iids, tokens) loop
    v_held := v_held || mbus._answer(v_claims.queue, (v_claims.consumer).id, v_claims.numbers, v_claims.tokens, v_until);
    -- A lease may have been shortened: maintenance must not skip the queue for longer than that, see mbus._rest.
    perform setval((v_claims.queue).swept, 0) from pg_sequence_last_value((v_claims.queue).swept) s
    where s >= mbus._drained() and s & 4294967295 > extract(epoch from v_until);
  end loop;
  return mbus._unheld(iids, tokens, v_held);
end $$;

-- For a handler that failed and rolled its transaction back: takes the message and handles it as nack does.
-- Returns 'ready', 'delayed', 'dmq', or 'absent' if the message no longer exists, is leased or dead.
-- Errors: MB001, MB002, MB009 foreign iid, MB012 delay, MB013 role, MB014 isolation, MB025 taken by this transaction.
create or replace function mbus.reject(
  qname text, cname text, iid text, delay interval default null, error text default null, park boolean default false) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_number   constant bigint := mbus._number(qname, iid);
  v_parcel   mbus.parcel;
begin
  perform mbus._check_consume(v_queue, cname);
  perform mbus._check_interval('delay', delay, false, 'A delay must be between zero and 1000 years.');
  select * into v_parcel from mbus._take_number(v_queue.id, v_consumer.id, v_number, true) limit 1;
  if not found then
    if mbus._state(v_queue, v_consumer.id, v_number) = 'gone' and (
         split_part(current_setting('mbus.taken', true), e'\n', 1) <> ''
         or exists (select from mbus._taken_here() t where t.consumer_id = v_consumer.id and t.number = v_number)) then
      raise exception 'message "%" was taken by this transaction', iid
        using errcode = 'MB025', hint = 'Call mbus.give_back with the message, or roll back first.';
    end if;
    return 'absent';
  end if;
  return mbus._give_back(v_consumer.id, mbus._tried(v_parcel), delay, error, park);
end $$;

-- For a handler that failed and keeps its transaction: gives back a message that this transaction took, as mbus.consume or
-- another function returned it, and handles it as nack does.  Returns 'ready', 'delayed' or 'dmq'.
--   message  the row, of type mbus.qt_model or that of the queue's payload; its data, headers and properties may be changed
-- Errors: MB001, MB002, MB009 foreign iid, MB011 row type, MB012 argument, MB013 role, MB014 isolation, MB026 not taken by
-- this transaction.
create or replace function mbus.give_back(
  cname text, message anyelement, delay interval default null, error text default null, park boolean default false) returns text
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
  perform mbus._check_interval('delay', delay, false, 'A delay must be between zero and 1000 years.');
  perform mbus._check_time('added', message.added), mbus._check_time('expires', message.expires);
  v_parcel.number := mbus._number(v_queue.name, message.iid);
  select t.trail into v_parcel.trail from mbus._taken_here() t where t.consumer_id = v_consumer.id and t.number = v_parcel.number;
  if not found or mbus._state(v_queue, v_consumer.id, v_parcel.number) <> 'gone' then
    raise exception 'message "%" was not taken by this transaction as "%"', message.iid, cname
      using errcode = 'MB026', hint = 'After a rollback call mbus.reject, after a lease mbus.nack.';
  end if;
  -- The headers that delivery adds are omitted; see mbus._deliver.
  v_headers := delete(delete(message.headers, mbus._constants(v_queue.name)), 'attempts'::text);
  v_parcel.headers := nullif(delete(v_headers, hstore('enqueue_time', message.added::text)), '');
  perform mbus._accept_headers(v_queue, delete(v_parcel.headers, 'seenby'::text));
  v_parcel.added := coalesce(message.added, mbus.now());
  v_parcel.expires := message.expires;
  v_parcel.properties := message.properties;
  v_parcel := mbus._load(v_parcel, message.data);
  if v_queue.has_waiters then
    perform mbus._posted(v_queue, v_parcel.number, array[v_consumer.id]);
  end if;
  perform mbus._tally(v_consumer.id, 'consumed', -1);
  return mbus._give_back(v_consumer.id, mbus._tried(v_parcel), delay, error, park);
end $$;
