-- The part of a post that plain messages do not need.

create or replace function mbus._check_expiry(p_delayed_until timestamptz, p_expires timestamptz) returns void
language plpgsql immutable set search_path from current as $$
begin
  perform mbus._check_time('delayed_until', p_delayed_until), mbus._check_time('expires', p_expires);
  if p_expires < p_delayed_until then
    raise exception 'the message would expire at %, before it is due at %', p_expires, p_delayed_until
      using errcode = 'MB012', hint = 'expires must be later than delayed_until.';
  end if;
end $$;

-- Expands null, one element, or one element per message to one element per message.
create or replace function mbus._spread(p_what text, p_values hstore[], p_count integer) returns hstore[]
language plpgsql immutable set search_path from current as $$
begin
  if p_values is null or cardinality(p_values) = p_count then return p_values; end if;
  if cardinality(p_values) = 1 then return array_fill(p_values[1], array[p_count]); end if;
  raise exception '% % for % messages', cardinality(p_values), p_what, p_count
    using errcode = 'MB012', hint = 'Pass none, one for all, or one per message.';
end $$;

create or replace function mbus._interval(p_what text, p_text text) returns interval
language plpgsql immutable set search_path from current as $$
begin
  if p_text::interval < '0' or p_text::interval > mbus._longest() then raise invalid_datetime_format; end if;
  return p_text::interval;
exception when invalid_datetime_format or datetime_field_overflow or interval_field_overflow then
  raise exception 'invalid %: "%"', p_what, p_text using errcode = 'MB012', hint = 'Write an interval of zero or more, such as 1 hour.';
end $$;

-- Checks headers, reserves the number, and stores delayed messages outside the ring.
-- parcel is null if there is nothing to put: the message is delayed, or its key was used before.
--   is_known  followers get no copy: the message repeats another one, or was taken by this transaction and returns to the consumers
--             that it was taken from
-- Locks: with an iid, an advisory lock on it; with a dedup_key or unique_key, the key's row.
create or replace function mbus._accept(
  p_queue_id integer, p_parcel mbus.parcel, p_delayed_until timestamptz, p_iid text,
  out number bigint, out parcel mbus.parcel, out is_known boolean)
language plpgsql set search_path from current as $$
declare
  v_queue    mbus.queue;
  v_key      text := p_parcel.headers -> 'dedup_key';
  v_is_unique boolean := coalesce(p_parcel.headers ?| '{unique_key,debounce}', false);
  v_is_back  boolean := false;
  v_same     bigint;
  v_back     record;
begin
  select * into v_queue from mbus.queue where id = p_queue_id;
  parcel := p_parcel;
  if v_is_unique then
    if p_parcel.headers -> 'unique_key' is null
       or p_parcel.headers ? 'debounce' and (p_delayed_until is not null or p_parcel.headers ? 'consume_after') then
      raise exception 'debounce needs a unique_key, and excludes delayed_until and consume_after'
        using errcode = 'MB012', hint = 'Set the header unique_key to what is debounced.';
    end if;
    p_delayed_until := coalesce(p_delayed_until, p_parcel.added + mbus._interval('debounce', p_parcel.headers -> 'debounce'));
  end if;
  perform mbus._check_expiry(p_delayed_until, p_parcel.expires);
  if p_iid is not null then
    select * into v_back from mbus._reserved(v_queue, p_iid);
    number := v_back.number;
    parcel.recipients := v_back.recipients;
    parcel.trail := v_back.trail;
    v_is_back := v_back.taken_number is not null;
  end if;
  is_known := v_is_back;
  if v_is_back then
    -- The path and the key of the message were recorded when it was first posted.
    parcel.headers := mbus._accept_headers(v_queue, delete(p_parcel.headers, 'seenby'::text)) || slice(p_parcel.headers, '{seenby}')
      || case when number is null then hstore('moved_from', v_back.trail ->> 'moved_from') else ''::hstore end;
    v_key := null;
    v_is_unique := false;
  else
    parcel.headers := mbus._accept_headers(v_queue, p_parcel.headers);
  end if;
  if v_key is not null or v_is_unique then
    number := coalesce(number, nextval(v_queue.position));
    if v_key is not null and not mbus._keep_key(v_queue.id, v_key, number, p_parcel.added,
      p_parcel.added + mbus._interval('dedup_window', coalesce(p_parcel.headers -> 'dedup_window', '1 hour'))) then
      select d.number into v_same from mbus.dedup d
      where d.queue_id = v_queue.id and d.key = v_key and d.until > p_parcel.added;
      is_known := true;
    elsif v_is_unique then
      v_same := mbus._hold_key(v_queue, parcel, number, case when p_parcel.headers ? 'debounce' then p_delayed_until end);
      -- Followers get a message that replaces another one.
      is_known := v_same is not null and not p_parcel.headers ? 'debounce';
      update mbus.dedup d set number = v_same
      where v_same is not null and d.queue_id = v_queue.id and d.key = v_key and d.number = _accept.number;
    end if;
    if v_same is not null then
      -- No message will be posted under the iid that was reserved for it.
      if p_iid is not null and v_queue.has_waiters then
        perform mbus._lost(v_queue.id, null, array[number]);
      end if;
      number := v_same;
      parcel := null;
      return;
    end if;
  end if;
  if p_delayed_until is not null then
    parcel.trail := coalesce(parcel.trail, '{}') || jsonb_build_object('delayed_until', p_delayed_until);
  end if;
  if p_delayed_until > p_parcel.added or p_parcel.headers -> 'consume_after' is not null
     or p_iid is not null and (v_is_back or v_queue.has_waiters) then
    number := coalesce(number, nextval(v_queue.position));
    if v_queue.mode = 'fanout' and parcel.recipients is null then
      execute format('select mbus.%I($1, $2)', '_match_' || v_queue.name) into parcel.recipients using parcel, number;
    end if;
  end if;
  parcel.number := number;
  if v_is_back then
    perform mbus._posted_back(v_back.taken_queue_id, v_back.taken_number, v_back.taken_by, v_queue, number, parcel.recipients);
  elsif v_queue.has_waiters and p_iid is not null then
    perform mbus._posted(v_queue, number, parcel.recipients);
  end if;
  if p_parcel.headers -> 'consume_after' is not null and mbus._block(v_queue, parcel, p_delayed_until) then
    parcel := null;
    return;
  end if;
  if p_delayed_until > p_parcel.added then
    insert into mbus.delayed (queue_id, due_at, number, added, expires, headers, properties, trail, recipients,
                              data_hstore, data_jsonb, data_text, data_bytea)
    select v_queue.id, p_delayed_until, (parcel).*;
    parcel := null;
  end if;
end $$;

-- Replaces a message that is still delayed since it was posted.  Returns false if it is not.
create or replace function mbus._replace_delayed(p_queue mbus.queue, p_parcel mbus.parcel, p_number bigint, p_due_at timestamptz)
returns boolean
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_most constant interval := mbus._interval('max_debounce', p_parcel.headers -> 'max_debounce');
begin
  if p_queue.mode = 'fanout' then
    execute format('select mbus.%I($1, $2)', '_match_' || p_queue.name) into p_parcel.recipients using p_parcel, p_number;
  end if;
  update mbus.delayed d
  set due_at = least(p_due_at, d.added + v_most), trail = jsonb_build_object('delayed_until', least(p_due_at, d.added + v_most)), recipients = p_parcel.recipients,
      expires = p_parcel.expires, headers = p_parcel.headers, properties = p_parcel.properties,
      data_hstore = p_parcel.data_hstore, data_jsonb = p_parcel.data_jsonb, data_text = p_parcel.data_text, data_bytea = p_parcel.data_bytea
  where d.queue_id = p_queue.id and d.number = p_number and d.due_at > p_parcel.added
    and d.consumer_id is null and not d.trail ? 'attempts';
  if not found then return false; end if;
  update mbus.unique_key k set expires = p_parcel.expires
  where k.queue_id = p_queue.id and k.key = p_parcel.headers -> 'unique_key' and k.expires is distinct from p_parcel.expires;
  return true;
end $$;

-- Stores a key.  Returns false if it is already stored and its window has not ended.
create or replace function mbus._keep_key(
  p_queue_id integer, p_key text, p_number bigint, p_now timestamptz, p_until timestamptz) returns boolean
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_pair     constant bigint := pg_sequence_last_value('mbus.dedup_tail');
  -- An older snapshot does not show the keys of the other tables.
  v_segments constant bigint[] := case when current_setting('transaction_isolation') <> 'read committed' then '{0,1,2}'
                                       when v_pair / 3 = v_pair % 3 then array[v_pair % 3] else array[v_pair / 3, v_pair % 3] end;
  v_count    bigint;
begin
  if exists (select from mbus.dedup d where d.queue_id = p_queue_id and d.key = p_key and d.until > p_now) then return false; end if;
  insert into mbus.dedup as d (queue_id, key, number, until, segment)
  select p_queue_id, p_key, p_number, p_until, s from unnest(v_segments) s order by s
  on conflict on constraint key_is_unique_in_its_queue
    do update set number = excluded.number, until = excluded.until where d.until <= p_now;
  get diagnostics v_count = row_count;
  if v_count = cardinality(v_segments) then return true; end if;
  -- Another transaction was first in one of the tables.
  delete from mbus.dedup d where d.queue_id = p_queue_id and d.key = p_key and d.number = p_number;
  return false;
end $$;

create or replace function mbus._accept_headers(p_queue mbus.queue, p_headers hstore) returns hstore
language plpgsql set search_path from current as $$
declare
  v_priority text := p_headers -> 'priority';
begin
  if v_priority is not null and v_priority not in ('high', 'normal', 'low') then
    raise exception 'unknown priority: "%"', v_priority using errcode = 'MB012', hint = 'Use high, normal or low.';
  end if;
  if p_headers -> 'group' is not null and v_priority <> 'normal' then
    raise exception 'a message of a group has no priority'
      using errcode = 'MB012', hint = 'The messages of a group keep their order; leave out one of the two headers.';
  end if;
  -- These values are index keys, and the size of an index entry is limited.
  if 500 < any (array[octet_length(p_headers -> 'group'), octet_length(p_headers -> 'dedup_key'), octet_length(p_headers -> 'unique_key')]) then
    raise exception 'the headers group, dedup_key and unique_key have 500 bytes at most'
      using errcode = 'MB012', hint = 'Use a digest of what you have.';
  end if;
  if v_priority <> all (p_queue.lanes) then
    perform mbus._add_feature(p_queue.id, v_priority);
  end if;
  if p_headers -> 'group' is not null and not p_queue.has_groups then
    perform mbus._add_feature(p_queue.id, 'groups');
  end if;
  if p_headers ? 'seenby' then
    return p_headers || hstore('seenby', mbus._seen(p_headers -> 'seenby'));
  end if;
  return p_headers;
end $$;

-- The databases that a forwarded message has passed, including this one.
create or replace function mbus._seen(p_seenby text) returns text
language plpgsql stable set search_path from current as $$
begin
  return (p_seenby::text[] || current_database()::text)::text;
exception when invalid_text_representation then
  raise exception 'invalid header seenby: "%"', p_seenby
    using errcode = 'MB012', hint = 'It is the text of an array of database names, such as {erp,warehouse}.';
end $$;

-- The same for many messages.  Many have the same list, so each list is parsed once.
create or replace function mbus._seen_all(p_headers hstore[]) returns hstore[]
language plpgsql stable set search_path from current as $$
declare
  v_list  text;
  v_after hstore;
begin
  -- The longest list first: the result is longer than any list that follows.
  for v_list in
    select d.list from (select distinct h -> 'seenby' as list from unnest(p_headers) h where h ? 'seenby') d
    order by length(d.list) desc
  loop
    v_after := hstore('seenby', mbus._seen(v_list));
    p_headers := array(
      select case when h -> 'seenby' = v_list then h || v_after else h end from unnest(p_headers) h);
  end loop;
  return p_headers;
end $$;

-- Checks a post under a given iid: one reserved by get_iid, or that of a message that the current transaction took.  In the latter case the
-- post gives the message back to the same consumers, or moves it to the user's own dead message queue, from which it can return under its
-- iid.
--   number         the message's number in this queue; null for an iid of another queue
--   recipients     consumers that it returns to; null: not decided
--   trail          of a moved message: its iid and the consumers to return it to
--   taken_…        the message that the current transaction took
-- Errors: MB009 foreign iid, MB010 neither reserved nor taken by this transaction.
-- Locks: an advisory lock on the iid, so that if two sessions post under it, one is refused.
create or replace function mbus._reserved(
  p_queue mbus.queue, p_iid text, out number bigint, out recipients integer[], out trail jsonb,
  out taken_queue_id integer, out taken_number bigint, out taken_by integer[])
language plpgsql set search_path from current as $$
declare
  v_is_own constant boolean := split_part(p_iid, '.', 1) = p_queue.name;
  v_taken  record;
begin
  perform mbus._check_isolation();
  if v_is_own then
    number := mbus._number(p_queue.name, p_iid);
    perform pg_advisory_xact_lock(hashtextextended(p_iid, 0));
    delete from mbus.reserved r where r.queue_id = p_queue.id and r.number = _reserved.number;
    if found then return; end if;
    -- Numbers of the service queue are bungs and gates: posting under one would release compensations.
    if p_queue.name = 'sagas' then
      raise exception 'iid "%" belongs to a saga', p_iid
        using errcode = 'MB010', hint = 'Roll a saga back with mbus.cancel_saga or by taking its bung.';
    end if;
  end if;
  -- moved is the history of a message that was posted to a queue other than that of its iid.
  select q.id as queue_id, t.number, array_agg(c.id) as consumers, max(case when t.trail ? 'moved_from' then t.trail::text end)::jsonb as moved
  into v_taken
  from mbus._taken_here() t join mbus.consumer c on c.id = t.consumer_id join mbus.queue q on q.id = c.queue_id
  where p_iid in (mbus._iid(q.name, t.number), t.trail ->> 'moved_from')
    and mbus._may_consume(q, c.name) and mbus._state(q, c.id, t.number) = 'gone'
  group by q.id, t.number limit 1;
  if v_taken.number is null and v_is_own then
    raise exception 'iid "%" is in use, or was used before', p_iid
      using errcode = 'MB010',
            hint = 'Reserve an iid with mbus.get_iid. A failed message goes back with mbus.give_back in the transaction '
                   'that took it, with mbus.nack after a lease, with mbus.reject after a rollback.';
  elsif v_taken.number is null then
    perform mbus._number(p_queue.name, p_iid);    -- raises MB009
  end if;
  taken_queue_id := v_taken.queue_id;
  taken_number := v_taken.number;
  taken_by := v_taken.consumers;
  if v_is_own then
    recipients := array(
      select c.id from mbus.consumer c where c.queue_id = p_queue.id and c.id in (
        select u.id from unnest(v_taken.consumers) u(id)
        union all select e::integer from jsonb_array_elements_text(v_taken.moved -> 'consumers') e));
  else
    trail := coalesce(v_taken.moved, jsonb_build_object('moved_from', p_iid, 'consumers', v_taken.consumers))
             - '{attempts,history,delayed_until}'::text[];
  end if;
end $$;

-- Changes the queue's functions with the first message that needs it: p_feature is high, low, groups, waiters or followers.
-- A transaction that has used the queue before may still run the old functions, which leave messages of groups alone.
create or replace function mbus._add_feature(p_queue_id integer, p_feature text) returns void
language plpgsql set search_path from current as $$
declare
  v_queue mbus.queue := mbus._alter(p_queue_id);
begin
  if p_feature = any (v_queue.lanes || array_remove(array[
       case when v_queue.has_groups then 'groups' end, case when v_queue.has_waiters then 'waiters' end,
       case when v_queue.has_followers then 'followers' end], null)) then
    return;
  end if;
  if p_feature in ('groups', 'waiters') and exists (select from mbus.consumer c where c.queue_id = p_queue_id and c.contract = 'cursor') then
    perform mbus._refuse_cursor(v_queue.name, case p_feature when 'groups' then 'groups' else 'consume_after and sagas' end);
  end if;
  update mbus.queue q
  set has_groups = q.has_groups or p_feature = 'groups', has_waiters = q.has_waiters or p_feature = 'waiters',
      has_followers = q.has_followers or p_feature = 'followers',
      lanes = q.lanes || case when p_feature in ('high', 'low') then array[p_feature] end
  where id = p_queue_id returning * into v_queue;
  perform mbus._create_slots(v_queue);    -- of a new lane
  perform mbus._generate(v_queue);
end $$;

-- The queue, locked against any other change of its shape until the end of the transaction.
-- Maintenance, which also makes tables, takes the same lock without waiting.
create or replace function mbus._alter(p_queue_id integer) returns mbus.queue
language plpgsql set search_path from current as $$
declare
  v_queue mbus.queue;
begin
  perform pg_advisory_xact_lock(mbus._lock_class(), p_queue_id);
  select * into v_queue from mbus.queue where id = p_queue_id for no key update;
  return v_queue;
end $$;

create or replace function mbus._lock_class() returns integer
language sql immutable parallel safe set search_path from current as $$ select hashtext('mbus.queue') $$;
