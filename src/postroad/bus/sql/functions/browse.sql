-- Reading without taking, for operators: messages by page, messages that wait for others.
-- Nothing is locked and nothing is counted; each page costs index probes for the rows that it shows.

-- Shows up to amt copies of one consumer in a state (ready, delayed, waiting, leased, dead, retained), in order of posting
-- from the one after place, or backwards.  A call reads at most amt messages, with a search at most `scan`.  After that many, a last row
-- with is_match false contains the place from which the next call continues.
-- A search for the iid of a ready message of the queue reads only that message.
-- retained: messages that are stored and already consumed, see mbus.history; in retained segments those of any consumer.
-- place is the id on the ring for ready and retained messages, the number of the message for the others.
-- data is truncated to max_characters; size is the size of the whole text in bytes.
-- Errors: MB001, MB002, MB012 state.
create or replace function mbus.browse(
  qname text, cname text default 'default', state text default 'ready', place bigint default null,
  is_descending boolean default false, amt integer default 50, search text default null, scan integer default 10000,
  max_characters integer default 100000)
returns table (place_of bigint, is_match boolean, iid text, added timestamptz, expires timestamptz, due_at timestamptz,
               attempts integer, error text, headers hstore, properties hstore, data text, size bigint)
language plpgsql stable security definer set search_path from current set enable_seqscan = off set jit = off rows 50 as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_order    constant text := case when is_descending then 'desc' else 'asc' end;
  v_past     constant text := case when is_descending then '<' else '>' end;
  v_rows     constant integer := least(greatest(case when search is null then amt else scan end, 1), 100000);
  v_node     constant text := (select '@' || n.name from mbus.node n);
  v_number   constant bigint := substring(search from '^[a-z0-9_]+\.([0-9]{1,18})@')::bigint;
  v_source   text;
begin
  if browse.state = 'ready' then
    v_source := mbus._browse_ready(v_queue, v_consumer, v_past, v_order);
  elsif browse.state = 'retained' then
    v_source := format('select * from (%s) s order by place %s limit $7', mbus._stored_query(v_queue, v_consumer.id, format($query$
      select g.id as place, coalesce(g.origin, g.id) as number, g.added, g.expires, null::timestamptz as due_at, g.trail, null::text as error, g.headers, g.properties, g.data::text as data
      from mbus.%%1$I g where ($4 is null or g.id %1$s $4) and ($11::bigint is null or g.id = $11 and g.origin is null) and %%2$s
      order by g.id %2$s limit $7$query$, v_past, v_order), '-infinity', 'infinity', v_past, browse.place, v_rows), v_order);
  else
    v_source := mbus._browse_aside(browse.state, v_past, v_order);
  end if;
  if browse.state = 'leased' then
    v_source := format('(%s) union all %s order by place %s limit $7', v_source, mbus._browse_claimed(v_queue, v_consumer, v_past, v_order), v_order);
  end if;
  return query execute format($query$
    with stored as materialized (%1$s),
    seen as (select s.*, coalesce(s.error, s.trail #>> '{history,-1,error}') as last_error from stored s),
    matched as (
      select s.*, row_number() over (order by s.place %2$s) as n, count(*) over () as total,
             (s.expires is null or s.expires > mbus.now() or $9)
             and ($5 is null or position(lower($5) in lower(concat_ws(' ', $1 || '.' || s.number || $10, s.last_error,
               s.properties::text, s.headers::text, s.data))) > 0) as is_match
      from seen s),
    shown as (
      select t.*, row_number() over (partition by t.is_match order by t.n) as place_in_kind from matched t)
    select t.place, k.is_match, mbus._iid($1, t.number), t.added, t.expires, t.due_at,
           coalesce((t.trail ->> 'attempts')::integer, 0), t.last_error, t.headers, t.properties,
           case when k.is_match then left(t.data, $8) end, octet_length(t.data)::bigint
    from shown t
    cross join (values (true), (false)) k (is_match)
    where case when k.is_match then t.is_match and t.place_in_kind <= $6 else t.n = t.total and t.total = $7 end
    order by t.n, k.is_match desc$query$, v_source, v_order)
  using qname, v_queue.id, v_consumer.id, browse.place, search, amt, v_rows, max_characters, browse.state <> 'ready', v_node,
    case when search = qname || '.' || v_number || v_node then v_number end;
end $$;

-- The query over the ring: the next rows of each table by its index, then the next of all of these.
-- With a number ($11), only that message; a message that was put back has another id on the ring.
create or replace function mbus._browse_ready(
  p_queue mbus.queue, p_consumer mbus.consumer, p_past text, p_order text) returns text
language sql stable set search_path from current as $$
  select '(' || string_agg(format($query$
    select l.id as place, coalesce(l.origin, l.id) as number, l.added, l.expires, null::timestamptz as due_at, l.trail, null::text as error, l.headers, l.properties, l.data::text as data
    from (select s.id from %1$s s
          where s.id >= %2$s and s.token is null and ($4 is null or s.id %3$s $4)
            and ($11::bigint is null or s.id = $11 and s.origin is null or s.origin = $11) order by s.id %4$s limit $7) s
    cross join lateral (select e.* from mbus.%5$I e where e.id = s.id offset 0) l$query$,
    mbus._ready_rows(p_consumer.id, t.ready_table, t.payload_table, p_order), coalesce(mbus._hint(t.ready_table), 0), p_past, p_order,
    t.payload_table), ' union all ')
    || format(') order by place %s limit $7', p_order)
  from mbus._tables(p_queue) t where t.consumer_id = p_consumer.id
$$;

-- The query over leased messages on the ring, up to the first 10,000 messages that can be taken.
create or replace function mbus._browse_claimed(p_queue mbus.queue, p_consumer mbus.consumer, p_past text, p_order text) returns text
language sql stable set search_path from current as $$
  select string_agg(format($query$
    select c.number as place, c.number, l.added, l.expires, c.leased_until as due_at,
           mbus._tried(l.trail) as trail, null::text as error, l.headers, l.properties, l.data::text as data
    from (select r.id, coalesce(r.origin, r.id) as number, r.leased_until from mbus.%1$I r
          where %2$s and ($4 is null or coalesce(r.origin, r.id) %4$s $4) order by number %5$s limit $7) c
    cross join lateral (select e.* from mbus.%3$I e where e.id = c.id offset 0) l$query$,
    t.ready_table, mbus._claimed_condition(t.ready_table, 9999), t.payload_table, p_past, p_order), ' union all ')
  from mbus._claim_tables(p_queue, p_consumer.id) t
$$;

-- The query over the messages that are not on the ring.
create or replace function mbus._browse_aside(p_state text, p_past text, p_order text) returns text
language plpgsql immutable set search_path from current as $$
declare
  v_table text;
  v_due   text;
  v_error text := 'null::text';
  v_mine  text := 'm.consumer_id = $3';
begin
  case p_state
    when 'delayed' then
      v_table := 'delayed'; v_due := 'm.due_at'; v_mine := 'mbus._is_for($3, m.consumer_id, m.recipients)';
    when 'waiting' then
      v_table := 'blocked'; v_due := 'm.due_at';
      v_mine := 'm.released_by is null and mbus._is_for($3, null, m.recipients)';
    when 'leased' then v_table := 'leased'; v_due := 'm.leased_until';
    when 'dead' then v_table := 'dmq'; v_due := 'm.died_at'; v_error := 'm.error';
    else
      raise exception 'unknown state: "%"', p_state
        using errcode = 'MB012', hint = 'Use ready, delayed, waiting, leased, dead or retained; retained messages can only be read.';
  end case;
  return format($query$
    select m.number as place, m.number, m.added, m.expires, %1$s as due_at, m.trail, %2$s as error, m.headers, m.properties,
           coalesce(m.data_hstore::text, m.data_jsonb::text, m.data_text, m.data_bytea::text) as data
    from mbus.%3$I m
    where m.queue_id = $2 and %4$s and ($4 is null or m.number %5$s $4)
    order by m.number %6$s limit $7$query$, v_due, v_error, v_table, v_mine, p_past, p_order);
end $$;

-- Messages that wait for others: one row per blocked message and predecessor, the latest amt of them.
create or replace function mbus.waits(qname text default null, amt integer default 200)
returns table (queue text, iid text, added timestamptz, due_at timestamptz, before_queue text, before_iid text,
               before_state text)
language sql stable security definer set search_path from current as $$
  select q.name, mbus._iid(q.name, b.number), b.added, b.due_at, p.name, mbus._iid(p.name, w.number),
         case when w.done_by is not null then 'done' when w.consumer_id is null then 'reserved' else 'pending' end
  from mbus.blocked b
  join mbus.queue q on q.id = b.queue_id
  left join mbus.wait w on w.blocked_id = b.id
  left join mbus.queue p on p.id = w.queue_id
  where b.released_by is null and (waits.qname is null or q.name = waits.qname)
  order by b.id desc limit waits.amt
$$;

-- Sagas before an id, the latest first, in one state or in all, with the number of steps that are done.  With a state, at most 100,000 are
-- read per call.
create or replace function mbus.sagas(state text default null, before bigint default null, amt integer default 50)
returns table (saga_id bigint, saga text, saga_state text, steps bigint, steps_done bigint, error text,
               created_at timestamptz, finished_at timestamptz, deadline timestamptz)
language sql stable security definer set search_path from current as $$
  select g.id, g.name, g.state, c.steps, c.done, g.error, g.created_at, g.finished_at, g.deadline
  from (select r.* from (
          select s.* from mbus.saga s
          where sagas.before is null or s.id < sagas.before
          order by s.id desc limit case when sagas.state is null then sagas.amt else 100000 end) r
        where sagas.state is null or r.state = sagas.state
        order by r.id desc limit sagas.amt) g
  cross join lateral (
    select count(*) as steps, count(*) filter (where t.state in ('done', 'compensated')) as done
    from mbus.saga_step t where t.saga_id = g.id) c
  order by g.id desc
$$;
