-- The messages of a saga are stored directly, under numbers drawn in advance, because each message contains its own iid as idempotency_key.
-- This also lets a transaction start thousands of sagas without a lock per message.

-- Returns the service queue, which is created with the first saga.
create or replace function mbus._saga_queue() returns mbus.queue
language plpgsql set search_path from current as $$
declare
  v_queue mbus.queue;
begin
  if not exists (select from mbus.queue where name = 'sagas') then perform mbus.create_queue('sagas'); end if;
  v_queue := mbus._queue('sagas'::text);
  if v_queue.payload <> 'hstore' then
    raise exception 'queue "sagas" carries %', v_queue.payload
      using errcode = 'MB003', hint = 'Sagas keep their bungs in a queue of this name, which carries hstore. Rename yours.';
  end if;
  -- Taking the bung must be detected even in a saga without compensations.
  if not v_queue.has_waiters then
    perform mbus._add_feature(v_queue.id, 'waiters');
    v_queue := mbus._queue('sagas'::text);
  end if;
  return v_queue;
end $$;

-- A parcel with the data in the queue's payload type.
create or replace function mbus._saga_parcel(p_queue mbus.queue, p_number bigint, p_data jsonb, p_headers hstore) returns mbus.parcel
language plpgsql set search_path from current as $$
declare
  v_parcel mbus.parcel;
  v_text   constant text := case when jsonb_typeof(p_data) = 'string' then p_data #>> '{}' else p_data::text end;
begin
  v_parcel.number := p_number;
  v_parcel.added := mbus.now();
  v_parcel.headers := p_headers;
  case p_queue.payload
    when 'jsonb' then v_parcel.data_jsonb := p_data;
    when 'text' then v_parcel.data_text := v_text;
    when 'bytea' then
      if jsonb_typeof(p_data) <> 'string' then
        perform mbus._refuse_payload(p_queue.name, 'bytea', jsonb_typeof(p_data));
      end if;
      v_parcel.data_bytea := mbus._read(v_text, null::bytea);
    else
      if jsonb_typeof(p_data) <> 'object' then
        perform mbus._refuse_payload(p_queue.name, 'hstore', jsonb_typeof(p_data));
      end if;
      select coalesce(hstore(array_agg(e.key), array_agg(e.value)), '') into v_parcel.data_hstore
      from jsonb_each_text(p_data) e;
  end case;
  return v_parcel;
end $$;

-- Posts one message of a saga.  With a gate it is kept until the saga opens it.
create or replace function mbus._saga_post(
  p_saga mbus.saga, p_queue mbus.queue, p_number bigint, p_data jsonb, p_step text, p_after text[], p_is_gated boolean) returns void
language plpgsql set search_path from current set enable_seqscan = off as $$
declare
  v_iid     constant text := mbus._iid(p_queue.name, p_number);
  v_parcel  mbus.parcel;
  v_blocked bigint;
begin
  v_parcel := mbus._saga_parcel(p_queue, p_number, p_data,
    hstore(array['saga', 'bung', 'idempotency_key'],
           array[p_saga.id::text, mbus._iid('sagas', p_saga.bung_number), v_iid])
    || case when p_step is null then ''::hstore else hstore('step', p_step) end
    || case when cardinality(p_after) > 0 then hstore('consume_after', p_after::text) else ''::hstore end
    -- For a message with a gate, the saga decides the effect of a lost predecessor.
    || case when p_is_gated then hstore('consume_after_lost', 'release') else ''::hstore end);
  perform mbus._conform(p_queue.id, mbus._as_json(v_parcel));
  if p_queue.mode = 'fanout' then
    execute format('select mbus.%I($1, $2)', '_match_' || p_queue.name) into v_parcel.recipients using v_parcel, p_number;
  end if;
  if p_is_gated then
    if cardinality(p_after) > 0 and mbus._block(p_queue, v_parcel, null) then
      select b.id into v_blocked from mbus.blocked b where b.queue_id = p_queue.id and b.number = p_number;
    else
      insert into mbus.blocked (queue_id, if_lost, number, added, expires, headers, properties, trail, recipients,
                                data_hstore, data_jsonb, data_text, data_bytea)
      select p_queue.id, 'dmq', (v_parcel).* returning id into v_blocked;
    end if;
    insert into mbus.wait (blocked_id, queue_id, number) values (v_blocked, p_saga.queue_id, p_saga.gate_number);
  elsif cardinality(p_after) = 0 or not mbus._block(p_queue, v_parcel, null) then
    perform mbus._put_many(p_queue.id, array[v_parcel]);
  end if;
  -- Copies of a message with a gate are made when the gate opens.
  if p_queue.has_followers and not p_is_gated then
    execute format('select mbus.%I($1, $2, null)', '_follow_' || p_queue.name) using v_parcel, p_number;
  end if;
end $$;

create or replace function mbus._refuse_saga(p_message text, p_hint text) returns void
language plpgsql immutable set search_path from current as $$
begin
  raise exception '%', p_message using errcode = 'MB012', hint = p_hint;
end $$;

-- Refuses a consumer that cannot handle a step: one with a selector might not get the message.
create or replace function mbus._check_saga_target(p_step text, p_queue text, p_consumer text) returns void
language plpgsql set search_path from current as $$
begin
  perform mbus._check_post(p_queue);
  if (mbus._consumer(mbus._queue(p_queue), p_consumer)).selector is not null then
    perform mbus._refuse_saga(format('step "%s" goes to consumer "%s" of queue "%s", which has a selector', p_step, p_consumer, p_queue),
                              'Use a consumer that gets every message.');
  end if;
end $$;

-- Checks the steps of a saga and returns them as rows.
create or replace function mbus._saga_steps(p_steps jsonb)
returns table (place integer, step text, do_queue text, undo_queue text, consumer text, after text[], data jsonb, undo_data jsonb)
language plpgsql set search_path from current as $$
declare
  v_step    jsonb;
  v_unknown text;
  v_known   text[] := '{}';
begin
  if jsonb_typeof(p_steps) is distinct from 'array' or jsonb_array_length(p_steps) not between 1 and 1000 then
    perform mbus._refuse_saga('a saga has between 1 and 1000 steps in an array',
      'Write [{"name": "rooms", "do": "book_rooms", "undo": "cancel_rooms"}, ...].');
  end if;
  for v_place in 1 .. jsonb_array_length(p_steps) loop
    place := v_place;
    v_step := p_steps -> (place - 1);
    if jsonb_typeof(v_step) <> 'object' then
      perform mbus._refuse_saga(format('step %s is not an object', place), 'Write {"name": "rooms", "do": "book_rooms", ...}.');
    end if;
    select k into v_unknown from jsonb_object_keys(v_step) k
    where k not in ('name', 'do', 'undo', 'consumer', 'after', 'data', 'undo_data') limit 1;
    if found then
      perform mbus._refuse_saga(format('step %s has an unknown key "%s"', place, v_unknown),
        'Known are name, do, undo, consumer, after, data, undo_data.');
    end if;
    step := v_step ->> 'name';
    perform mbus._check_name('step', step);
    if step = any (v_known) then
      perform mbus._refuse_saga(format('there are two steps "%s"', step), 'Each step has a name of its own.');
    end if;
    do_queue := v_step ->> 'do';
    undo_queue := v_step ->> 'undo';
    consumer := coalesce(v_step ->> 'consumer', 'default');
    after := '{}';
    if jsonb_typeof(v_step -> 'after') <> 'null' then
      if jsonb_typeof(v_step -> 'after') <> 'array' then
        perform mbus._refuse_saga(format('"after" of step "%s" is not an array', step), 'Write "after": ["rooms"].');
      end if;
      after := array(select distinct e from jsonb_array_elements_text(v_step -> 'after') e);
      -- Steps refer only to earlier ones, so that no cycle is possible.
      if not after <@ v_known or array_position(after, null) is not null then
        perform mbus._refuse_saga(format('step "%s" comes after a step that is not listed before it', step),
                                  'Let "after" name steps that are earlier in the array.');
      end if;
    end if;
    data := v_step -> 'data';
    undo_data := v_step -> 'undo_data';
    perform mbus._check_saga_target(step, do_queue, consumer);
    if undo_queue is not null then perform mbus._check_saga_target(step, undo_queue, consumer); end if;
    v_known := v_known || step;
    return next;
  end loop;
end $$;
