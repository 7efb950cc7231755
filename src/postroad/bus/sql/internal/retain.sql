-- Retention: a slot that would be truncated becomes a separate table, which maintenance drops when it is too old.

create or replace function mbus._is_retained(p_queue mbus.queue) returns boolean
language sql immutable parallel safe
return num_nonnulls((p_queue).retain, (p_queue).retain_size) > 0;

-- True if the first message of a slot was posted an eighth of the retention time ago: then the slot is sealed before it is full.
create or replace function mbus._is_aged(p_queue mbus.queue, p_slot bigint) returns boolean
language plpgsql stable set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_lane text;
  v_at   timestamptz;
begin
  foreach v_lane in array p_queue.lanes loop
    execute format('select l.added from mbus.%I l order by l.id limit 1', mbus._log_name(p_queue, v_lane, p_slot)) into v_at;
    if v_at < mbus.now() - p_queue.retain / 8 then return true; end if;
  end loop;
  return false;
end $$;

-- Turns the tables of a slot into retained segments and gives the slot new ones.  Must be called with the slot's tables locked and without
-- messages to consume.  Sessions that wait for the lock then look up the name again and find the new table.
create or replace function mbus._retain(p_queue mbus.queue, p_slot bigint) returns void
language plpgsql set search_path from current set enable_seqscan = on as $$
declare
  v_lane text;
  v_log  text;
  v_id   bigint;
begin
  foreach v_lane in array p_queue.lanes loop
    v_log := mbus._log_name(p_queue, v_lane, p_slot);
    execute format('insert into mbus.retained (queue_id, messages, bytes, first_id, last_id, first_at, last_at, retained_at)
                    select $1, count(*), pg_total_relation_size($2), min(l.id), max(l.id), min(l.added), max(l.added), mbus.now()
                    from mbus.%I l having count(*) > 0 returning id', v_log)
    into v_id using p_queue.id, format('mbus.%I', v_log)::regclass;
    continue when v_id is null;
    execute format('drop index mbus.%I', v_log || '_ex');
    execute format('alter index mbus.%I rename to %I', v_log || '_id', format('qr$%s_id', v_id));
    execute format('alter table mbus.%I rename to %I', v_log, format('qr$%s', v_id));
    perform mbus._create_payload_table(v_log, p_queue.payload, p_queue.track);
  end loop;
  perform mbus._index_keys(p_queue);
  perform mbus._rebuild_views(p_queue);
end $$;

-- Drops segments that are too old, exceed the size, or belong to a queue that was dropped or no longer retains messages; not those that a
-- replay has yet to read.
-- At most 200 per call: each takes several locks.  Locks: access exclusive on the segment, never waited for.
create or replace function mbus._drop_retained() returns void
language plpgsql set search_path from current set client_min_messages = warning as $$
declare
  v_id bigint;
begin
  for v_id in
    select s.id
    from (select r.id, r.queue_id, r.last_id, r.retained_at, sum(r.bytes) over (partition by r.queue_id order by r.first_id desc) as total
          from mbus.retained r) s
    left join mbus.queue q on q.id = s.queue_id
    where (not mbus._is_retained(q) or s.retained_at <= mbus.now() - q.retain or s.total > q.retain_size)
      and not exists (select from mbus.replay p where p.queue_id = s.queue_id and p.finished_at is null and p.place < s.last_id)
    order by s.id limit 200
  loop
    begin
      execute format('lock table mbus.%1$I in access exclusive mode nowait', format('qr$%s', v_id));
      execute format('drop table mbus.%I', format('qr$%s', v_id));
      delete from mbus.retained r where r.id = v_id;
    exception when lock_not_available then null;    -- being read; the next run tries again
    end;
  end loop;
end $$;

-- A query over the stored messages of a queue: its retained segments and the tables of its ring.
--   p_select    the query over one table; %1$I is the table, %2$s is true if the consumer has consumed its row g
--   p_since, p_until  leaves out segments with other times of posting
--   p_past, p_place, p_rows  leaves out segments that do not contain one of the next rows: p_rows ids that are larger (>) or smaller (<)
create or replace function mbus._stored_query(
  p_queue mbus.queue, p_consumer_id integer, p_select text, p_since timestamptz, p_until timestamptz,
  p_past text default '>', p_place bigint default null, p_rows bigint default null) returns text
language sql stable set search_path from current as $$
  with segment as materialized (
    select r.id, r.first_id, r.last_id,
           sum(case when p_past = '>' and r.first_id > p_place or p_past = '<' and r.last_id < p_place or p_place is null then r.messages else 0 end)
             over (order by case p_past when '>' then r.first_id else - r.last_id end rows between unbounded preceding and 1 preceding) as before
    from mbus.retained r
    where r.queue_id = p_queue.id and r.last_at >= p_since and r.first_at < p_until
      and (p_place is null or case p_past when '>' then r.last_id > p_place else r.first_id < p_place end)),
  -- The ids of segments may overlap, because of lanes and of posts that were open when a slot was sealed.
  chosen as (select min(s.first_id) as first_id, max(s.last_id) as last_id from segment s where p_rows is null or coalesce(s.before, 0) < p_rows)
  select string_agg('(' || format(p_select, t.name, t.consumed) || ')', ' union all ')
  from (
    select format('qr$%s', s.id) as name, 'true' as consumed from segment s, chosen c
    where case p_past when '>' then s.first_id <= c.last_id else s.last_id >= c.first_id end
    union all
    select t.payload_table, format('not exists (select from %s r where r.id = g.id)', mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table))
    from mbus._tables(p_queue) t where t.consumer_id = p_consumer_id) t
$$;

-- The same as messages t for selectors; raw are the stored headers, past is the history of the copy.
--   $1 queue  $2 place  $3 since  $4 until
create or replace function mbus._stored_messages(
  p_queue mbus.queue, p_consumer_id integer, p_since timestamptz, p_until timestamptz, p_place bigint, p_more text default '',
  is_consumed boolean default true) returns text
language sql stable set search_path from current as $$
  select format($query$
    select s.id, s.origin, mbus._iid($1, coalesce(s.origin, s.id)) as iid, s.added, s.expires, mbus._attempts(s.past) as attempts, %s as headers,
           s.properties, s.data, (s.past ->> 'delayed_until')::timestamptz as delayed_until, null::integer[] as received, s.raw
    from (%s) s$query$,
    mbus._fill('headers_delivered', mbus._queue_values(p_queue) || '{"added": "s.added", "headers": "s.raw"}'),
    mbus._stored_query(p_queue, p_consumer_id,
      'select g.id, g.origin, g.added, g.expires, g.trail as past, g.headers as raw, g.properties, g.data from mbus.%1$I g
       where g.id > $2 and g.added >= $3 and g.added < $4 ' || case when is_consumed then 'and %2$s ' else '' end || p_more, p_since, p_until, '>', p_place))
$$;
