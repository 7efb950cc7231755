-- The history of a message is stored with it: {"attempts": 2, "delayed_until": …, "history": [{"at", "attempt", "error"}]}.

create or replace function mbus._attempts(p_trail jsonb) returns integer
language sql immutable parallel safe
return coalesce(($1 ->> 'attempts')::integer, 0);

-- Adds an attempt to the history.
create or replace function mbus._tried(p_trail jsonb) returns jsonb
language sql immutable parallel safe
return coalesce($1, '{}'::jsonb) || jsonb_build_object('attempts', mbus._attempts($1) + 1);

create or replace function mbus._tried(p_parcel mbus.parcel) returns mbus.parcel
language plpgsql immutable set search_path from current as $$
begin
  p_parcel.trail := mbus._tried(p_parcel.trail);
  return p_parcel;
end $$;

-- The last 20 failures are kept.
create or replace function mbus._failed(p_trail jsonb, p_error text, p_at timestamptz) returns jsonb
language sql immutable set search_path from current as $$
  select coalesce(p_trail, '{}') || jsonb_build_object('history', (
    select jsonb_agg(entry order by place)
    from (
      select entry, place
      from jsonb_array_elements(
        coalesce(p_trail -> 'history', '[]')
        || jsonb_build_object('at', p_at, 'attempt', mbus._attempts(p_trail), 'error', p_error))
        with ordinality h(entry, place)
      order by place desc limit 20) latest))
$$;

-- The first line of an error without the parts that differ between messages: quoted values, ids and numbers become "?".
create or replace function mbus._normalised(p_error text) returns text
language sql immutable parallel safe
return left(regexp_replace(left(split_part($1, e'\n', 1), 1000),
  '"[^"]*"|«[^»]*»|“[^”]*”|`[^`]*`|(?<![[:alnum:]])''[^'']*''(?![[:alnum:]])'
  '|\m[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\M|\m[0-9A-Fa-f]{8,}\M|\m0x[0-9A-Fa-f]+\M|[0-9]+([.,:][0-9]+)*(@[a-z0-9]+)?',
  '?', 'g'), 200);

create or replace function mbus._fingerprint(p_error text) returns text
language sql immutable parallel safe
return left(encode(sha256(convert_to(coalesce(mbus._normalised($1), ''), 'UTF8')), 'hex'), 12);

-- Writes a message of one consumer into the dmq.
create or replace function mbus._bury(p_consumer_id integer, p_parcel mbus.parcel, p_number bigint, p_error text) returns void
language sql set search_path from current as $$
  insert into mbus.dmq (queue_id, consumer_id, died_at, error, number, added, expires, headers, properties, trail,
                        data_hstore, data_jsonb, data_text, data_bytea, fingerprint)
  select c.queue_id, c.id, mbus.now(), p_error, p_number, p_parcel.added, p_parcel.expires, p_parcel.headers,
         p_parcel.properties, mbus._failed(p_parcel.trail, p_error, mbus.now()),
         p_parcel.data_hstore, p_parcel.data_jsonb, p_parcel.data_text, p_parcel.data_bytea, mbus._fingerprint(p_error)
  from mbus.consumer c where c.id = p_consumer_id;
  select mbus._tally(p_consumer_id, 'died', 1)
$$;

-- Returns a message that one consumer could not handle: ready again, delayed, or dead.
-- p_delay null: the consumer's backoff, doubled with each attempt, of which half is random.
create or replace function mbus._give_back(
  p_consumer_id integer, p_parcel mbus.parcel, p_delay interval, p_error text, p_is_parked boolean) returns text
language plpgsql set search_path from current as $$
declare
  v_consumer mbus.consumer;
  v_now      constant timestamptz := mbus.now();
  v_attempts constant integer := mbus._attempts(p_parcel.trail);
  v_delay    interval;
begin
  select * into v_consumer from mbus.consumer where id = p_consumer_id;
  if p_parcel.headers ? 'saga' then
    perform mbus._saga_tried(v_consumer.queue_id, p_consumer_id, p_parcel.number, v_attempts, p_error);
  end if;
  if p_is_parked or v_attempts >= v_consumer.max_attempts then
    perform mbus._bury(p_consumer_id, p_parcel, p_parcel.number, coalesce(p_error, 'gave up'));
    return 'dmq';
  end if;
  perform mbus._tally(p_consumer_id, 'rejected', 1);
  -- In seconds, because an interval of many days doubled many times overflows.  Random in the upper
  -- half, so that messages that failed together are not retried together.
  v_delay := coalesce(p_delay, make_interval(secs => (1 - random() / 2) * least(
    extract(epoch from v_consumer.backoff) * power(2, least(greatest(v_attempts - 1, 0), 30)),
    extract(epoch from v_consumer.backoff_max))::double precision));
  if p_error is not null then
    p_parcel.trail := mbus._failed(p_parcel.trail, p_error, v_now);
  end if;
  return mbus._put_back(v_consumer.queue_id, p_consumer_id, p_parcel, v_delay);
end $$;

-- Puts a message of one consumer back.  Returns 'ready' or 'delayed'.
create or replace function mbus._put_back(p_queue_id integer, p_consumer_id integer, p_parcel mbus.parcel, p_delay interval) returns text
language plpgsql set search_path from current as $$
declare
  v_due constant timestamptz := mbus.now() + p_delay;
begin
  p_parcel.recipients := array[p_consumer_id];
  if p_delay > '0' then
    p_parcel.trail := coalesce(p_parcel.trail, '{}') || jsonb_build_object('delayed_until', v_due);
  end if;
  -- A message of a group waits outside the ring even without a delay: on the ring it would come after later messages of its group.
  if p_delay > '0' or p_parcel.headers -> 'group' is not null then
    insert into mbus.delayed (queue_id, consumer_id, group_name, due_at, number, added, expires, headers, properties,
                              trail, recipients, data_hstore, data_jsonb, data_text, data_bytea)
    select p_queue_id, p_consumer_id, p_parcel.headers -> 'group', v_due, (p_parcel).*;
    return case when p_delay > '0' then 'delayed' else 'ready' end;
  end if;
  perform mbus._put_many(p_queue_id, array[p_parcel]);
  return 'ready';
end $$;
