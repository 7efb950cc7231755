-- Dead messages for operators: groups by error, actions on many messages by their ids in mbus.dead, and redriving one with other data.
-- A call with ids changes those that exist and that no other transaction holds, so repeating it after a failure changes each message once.

-- Counts dead messages by consumer and normalised error: the 1,000 largest groups.
--   error   its first line, with quoted values, ids and numbers replaced by "?"
--   trend   how many of the messages died in each of the last 24 hours, the current one last
create or replace function mbus.dead_groups(qname text default null)
returns table (queue text, consumer text, fingerprint text, error text, messages bigint, first_at timestamptz, last_at timestamptz,
               trend integer[])
language sql stable security definer set search_path from current set jit = off as $$
  -- A little later than now, so that a message that dies now belongs to the last hour.
  with clock as materialized (select mbus.now() + interval '1 microsecond' as time),
  hourly as (
    select d.consumer_id, d.fingerprint, date_bin('1 hour', d.died_at, c.time) - c.time as age, count(*) as messages,
           min(d.died_at) as first_at, max(d.died_at) as last_at, max(d.id) as last_id
    from clock c cross join mbus.dmq d
    where $1 is null or d.consumer_id in (select m.id from mbus.consumer m join mbus.queue q on q.id = m.queue_id where q.name = $1)
    group by 1, 2, 3),
  grouped as (
    select h.consumer_id, h.fingerprint, sum(h.messages)::bigint as messages, min(h.first_at) as first_at, max(h.last_at) as last_at,
           max(h.last_id) as last_id, jsonb_object_agg(extract(epoch from h.age)::bigint / 3600 + 24, h.messages) as hours
    from hourly h group by 1, 2 order by 3 desc limit 1000)
  select q.name, m.name, g.fingerprint, coalesce(mbus._normalised(d.error), ''), g.messages, g.first_at, g.last_at,
         array(select coalesce((g.hours ->> n::text)::integer, 0) from generate_series(0, 23) n order by n)
  from grouped g join mbus.dmq d on d.id = g.last_id join mbus.consumer m on m.id = g.consumer_id join mbus.queue q on q.id = m.queue_id
  order by g.messages desc, 1, 2, 3
$$;

-- Deprecated: mbus.dead_groups.
create or replace function mbus.dead_reasons(qname text default null)
returns table (queue text, consumer text, error text, messages bigint, first_at timestamptz, last_at timestamptz,
               is_complete boolean)
language sql stable security definer set search_path from current as $$
  select g.queue, g.consumer, g.error, g.messages, g.first_at, g.last_at, true from mbus.dead_groups($1) g
$$;

-- Removes dead messages.  For a redrive, only those that have not expired, because expired ones would not be delivered.  Otherwise only
-- those that belong to no saga, because a saga could neither complete nor roll back without them.
create or replace function mbus._take_dead(p_ids bigint[], p_is_redriven boolean) returns setof mbus.dmq
language sql set search_path from current as $$
  delete from mbus.dmq d where d.id = any (array(
    select w.id from mbus.dmq w
    where w.id = any (p_ids) and case when p_is_redriven then w.expires is null or w.expires > mbus.now()
                                      else not coalesce(w.headers ? 'saga', false) end
    order by w.id for update skip locked))
  returning d.*
$$;

-- Makes dead messages ready for their consumers again, in order of posting, or delays them; resets their attempts and keeps their history;
-- returns their number.  Expired messages stay.
create or replace function mbus.redrive_dead(ids bigint[], delay interval default null) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue_id integer;
  v_parcels  mbus.parcel[];
  v_count    bigint := 0;
begin
  for v_queue_id, v_parcels in
    select d.queue_id, array_agg(row(d.number, d.added, d.expires, d.headers, d.properties, d.trail - 'attempts', array[d.consumer_id],
                                     d.data_hstore, d.data_jsonb, d.data_text, d.data_bytea)::mbus.parcel order by d.number)
    from mbus._take_dead(ids, true) d group by 1
  loop
    if delay > '0' then
      perform mbus._put_back(v_queue_id, p.recipients[1], p, delay) from unnest(v_parcels) p;
    else
      perform mbus._put_many(v_queue_id, v_parcels);
    end if;
    v_count := v_count + cardinality(v_parcels);
  end loop;
  return v_count;
end $$;

-- Posts dead messages to another queue as mbus.move does; returns their number.  Messages of sagas stay.
-- Errors: MB001, MB011 payloads differ, MB012 same queue.
create or replace function mbus.move_dead(ids bigint[], destination text) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_destination constant mbus.queue := mbus._queue(destination);
  v_queue mbus.queue;
  v_dead  mbus.dmq;
  v_count bigint := 0;
begin
  for v_dead in select * from mbus._take_dead(ids, false) d order by d.queue_id, d.number loop
    if v_queue.id is distinct from v_dead.queue_id then
      select * into v_queue from mbus.queue q where q.id = v_dead.queue_id;
      perform mbus._check_move(v_queue, v_destination);
    end if;
    perform mbus._post_moved(v_queue, v_dead.consumer_id, destination, mbus._parcel(v_dead));
    v_count := v_count + 1;
  end loop;
  return v_count;
end $$;

-- Deletes dead messages; returns their number.  Messages of sagas stay.  Messages that wait for a deleted one treat it as lost.
create or replace function mbus.purge_dead(ids bigint[]) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_gone  record;
  v_count bigint := 0;
begin
  for v_gone in select d.queue_id, d.consumer_id, array_agg(d.number) as numbers from mbus._take_dead(ids, false) d group by 1, 2 loop
    if (select q.has_waiters from mbus.queue q where q.id = v_gone.queue_id) then
      perform mbus._lost(v_gone.queue_id, v_gone.consumer_id, v_gone.numbers);
    end if;
    v_count := v_count + cardinality(v_gone.numbers);
  end loop;
  return v_count;
end $$;

-- Redrives a dead message with other data or properties; null leaves them unchanged.  The message keeps its iid, and its original is
-- kept in mbus.dead_originals.  Returns how many copies were redriven: 0 if it is not dead or has expired.
--   data   the text of a payload of the queue
--   cname  only the copy of this consumer
-- Errors: MB001, MB002, MB009 foreign iid, MB011 data.
create or replace function mbus.redrive_edited(
  iid text, data text default null, properties hstore default null, cname text default null, edited_by text default null) returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._queue(split_part(iid, '.', 1));
  v_number   constant bigint := mbus._number(v_queue.name, iid);
  v_consumer integer;
  v_ids      bigint[];
begin
  if cname is not null then v_consumer := (mbus._consumer(v_queue, cname)).id; end if;
  v_ids := array(select d.id from mbus.dmq d
                 where d.queue_id = v_queue.id and d.number = v_number and (v_consumer is null or d.consumer_id = v_consumer)
                   and (d.expires is null or d.expires > mbus.now())
                 order by d.id for update);
  insert into mbus.dead_original (queue_id, consumer_id, number, edited_at, edited_by, died_at, error, properties, data)
  select d.queue_id, d.consumer_id, d.number, mbus.now(), coalesce($5, session_user), d.died_at, d.error, d.properties,
         coalesce(d.data_hstore::text, d.data_jsonb::text, d.data_text, d.data_bytea::text)
  from mbus.dmq d where d.id = any (v_ids);
  execute format('update mbus.dmq d set properties = coalesce($1, d.properties), %1$I = coalesce(mbus._read($2, null::%2$s), d.%1$I)
                  where d.id = any ($3)', 'data_' || v_queue.payload, v_queue.payload)
  using $3, $2, v_ids;
  if $2 is not null then
    perform mbus._conform(d.queue_id, mbus._as_json(mbus._parcel(d))) from mbus.dmq d where d.id = any (v_ids);
  end if;
  return mbus.redrive_dead(v_ids);
end $$;
