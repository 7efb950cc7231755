-- What happened to a message: {"attempts": 2, "delayed_until": …, "history": [{"at", "attempt", "error"}]}.

create or replace function mbus._attempts(p_trail jsonb) returns integer
language sql immutable parallel safe
return coalesce((p_trail ->> 'attempts')::integer, 0);

-- The headers as a consumer sees them.  Those of a forwarded message win over this database's own,
-- except where it was received and how often it was tried here.
create or replace function mbus._deliver(p_constants hstore, p_added timestamptz, p_headers hstore, p_trail jsonb)
returns hstore
language sql stable parallel safe
return case
  when p_headers is null and p_trail is null
    then p_constants || hstore('enqueue_time', p_added::text)
  else p_constants || hstore('enqueue_time', p_added::text) || delete(coalesce(p_headers, ''::hstore), 'attempts'::text)
       || hstore('destination', p_constants -> 'destination')
       || case when mbus._attempts(p_trail) > 0 then hstore('attempts', p_trail ->> 'attempts') else ''::hstore end
end;

-- One attempt more.
create or replace function mbus._tried(p_trail jsonb) returns jsonb
language sql immutable parallel safe
return coalesce(p_trail, '{}'::jsonb) || jsonb_build_object('attempts', mbus._attempts(p_trail) + 1);

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

-- Writes a message of one consumer into the dmq.
create or replace function mbus._bury(p_consumer_id integer, p_parcel mbus.parcel, p_number bigint, p_error text)
returns void
language sql set search_path from current as $$
  insert into mbus.dmq (queue_id, consumer_id, died_at, error, number, added, expires, headers, properties, trail,
                        data_hstore, data_jsonb, data_text, data_bytea)
  select c.queue_id, c.id, mbus.now(), p_error, p_number, p_parcel.added, p_parcel.expires, p_parcel.headers,
         p_parcel.properties, mbus._failed(p_parcel.trail, p_error, mbus.now()),
         p_parcel.data_hstore, p_parcel.data_jsonb, p_parcel.data_text, p_parcel.data_bytea
  from mbus.consumer c where c.id = p_consumer_id;
  select mbus._tally(p_consumer_id, 'died', 1)
$$;

-- What becomes of a message that one consumer could not handle: ready again, delayed, or dead.
-- p_delay null: the consumer's backoff, doubled with each attempt, of which half is left to chance.
create or replace function mbus._give_back(
  p_consumer_id integer, p_parcel mbus.parcel, p_delay interval, p_error text, p_is_parked boolean)
returns text
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
  -- In seconds, because an interval of many days doubled many times overflows.  Spread over the upper
  -- half, so that failures that came together do not come back together.
  v_delay := coalesce(p_delay, make_interval(secs => (1 - random() / 2) * least(
    extract(epoch from v_consumer.backoff) * power(2, least(greatest(v_attempts - 1, 0), 30)),
    extract(epoch from v_consumer.backoff_max))::double precision));
  if p_error is not null then
    p_parcel.trail := mbus._failed(p_parcel.trail, p_error, v_now);
  end if;
  p_parcel.recipients := array[p_consumer_id];
  if v_delay > '0' then
    p_parcel.trail := coalesce(p_parcel.trail, '{}') || jsonb_build_object('delayed_until', v_now + v_delay);
  end if;
  -- A message of a group waits beside the ring even without delay: on the ring it would come after
  -- the younger ones of its group.
  if v_delay > '0' or p_parcel.headers -> 'group' is not null then
    insert into mbus.delayed (queue_id, consumer_id, group_name, due_at, number, added, expires, headers, properties,
                              trail, recipients, data_hstore, data_jsonb, data_text, data_bytea)
    select v_consumer.queue_id, p_consumer_id, p_parcel.headers -> 'group', v_now + v_delay, p_parcel.number,
           p_parcel.added, p_parcel.expires, p_parcel.headers, p_parcel.properties, p_parcel.trail,
           p_parcel.recipients, p_parcel.data_hstore, p_parcel.data_jsonb, p_parcel.data_text, p_parcel.data_bytea;
    return case when v_delay > '0' then 'delayed' else 'ready' end;
  end if;
  perform mbus._put(v_consumer.queue_id, p_parcel);
  return 'ready';
end $$;

-- Puts many messages on a queue that is known by its id only.
create or replace function mbus._put_many(p_queue_id integer, p_parcels mbus.parcel[]) returns void
language plpgsql set search_path from current as $$
declare
  v_name text;
begin
  if p_parcels is null then return; end if;
  select name into v_name from mbus.queue where id = p_queue_id;
  execute format('select count(mbus.%I(p)) from unnest($1) p', '_put_' || v_name) using p_parcels;
end $$;

-- For a session that still runs a put from before the queue got a lane.  Locking a table that is new to the
-- transaction makes the session take notice of what has changed, so the next call is the put of today.
create or replace function mbus._put_anew(p_queue text, p_lane integer, p_parcel mbus.parcel) returns bigint
language plpgsql set search_path from current as $$
declare
  v_queue  mbus.queue := mbus._queue(p_queue);
  v_number bigint;
begin
  if current_setting('mbus.anew', true) = p_queue then
    raise exception 'queue "%" has changed since this transaction began', p_queue
      using errcode = 'MB017', hint = 'Roll back and do it again.';
  end if;
  execute format('lock table mbus.%I in row exclusive mode', mbus._log_name(
    v_queue, ('{normal,high,low}'::text[])[p_lane + 1], mbus._figure(p_queue, 'tail') % v_queue.slots));
  perform set_config('mbus.anew', p_queue, true);
  execute format('select mbus.%I($1)', '_put_' || p_queue) into v_number using p_parcel;
  perform set_config('mbus.anew', '', true);
  return v_number;
end $$;

-- Puts a message on a queue that is known by its id only.
create or replace function mbus._put(p_queue_id integer, p_parcel mbus.parcel) returns void
language plpgsql set search_path from current as $$
declare
  v_name text;
begin
  select name into v_name from mbus.queue where id = p_queue_id;
  execute format('select mbus.%I($1)', '_put_' || v_name) using p_parcel;
end $$;
