-- Finds a message by its number.  This is not on the hot path, so dynamic statements probe the queue's tables one by one.

-- True when a live message is ready, delayed or leased; p_number null: any message.
create or replace function mbus._has(p_queue_id integer, p_number bigint) returns boolean
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_queue mbus.queue;
  v_table record;
  v_has   boolean;
begin
  select * into v_queue from mbus.queue where id = p_queue_id;
  for v_table in
    select distinct t.ready_table, t.payload_table, mbus._ready_rows(t.consumer_id, t.ready_table, t.payload_table) as rows
    from mbus._tables(v_queue) t
  loop
    execute format($query$
      select exists (
        select from %1$s s
        cross join lateral (select e.expires from mbus.%2$I e where e.id = s.id offset 0) l
        where (%3$s) and (s.token is not null or l.expires is null or l.expires > mbus.now()))$query$,
      v_table.rows, v_table.payload_table,
      case when p_number is null then 's.id >= $2' else 's.id = $1 and s.origin is null or s.origin = $1' end)
    into v_has using p_number, mbus._base(v_table.ready_table);
    if v_has then return true; end if;
  end loop;
  return exists (select from mbus.delayed d
                 where d.queue_id = p_queue_id and (p_number is null or d.number = p_number)
                   and (d.expires is null or d.expires > mbus.now()))
      or exists (select from mbus.leased l where l.queue_id = p_queue_id and (p_number is null or l.number = p_number))
      or exists (select from mbus.blocked b where b.queue_id = p_queue_id and (p_number is null or b.number = p_number)
                   and b.released_by is null and (b.expires is null or b.expires > mbus.now()));
end $$;

-- Removes a message by its number in any state, for one consumer or (null) for all, and returns each copy, whose recipients are the
-- consumers it belonged to.  Expired messages are left to mbus._expire, which also handles the messages that wait for them.
--   p_is_idle  do not remove leased or dead copies
-- Waits for transactions that hold the message.  A copy that moves during the search is found in the next round.
create or replace function mbus._take_number(
  p_queue_id integer, p_consumer_id integer, p_number bigint, p_is_idle boolean default false) returns setof mbus.parcel
language plpgsql set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_queue mbus.queue;
  v_table record;
  v_taken record;
  v_parcel mbus.parcel;
  v_found bigint;
  v_total bigint;
  v_round integer := 0;
begin
  perform mbus._check_isolation();
  select * into v_queue from mbus.queue where id = p_queue_id;
  perform pg_advisory_xact_lock(c.id, 0) from mbus.consumer c
  where c.queue_id = p_queue_id and c.contract = 'cursor' and (p_consumer_id is null or c.id = p_consumer_id);
  loop
    v_total := 0;
    for v_table in
      select t.consumer_id, q.query from mbus._tables(v_queue) t
      cross join lateral (
        select mbus._take_query(v_queue, t.ready_table, t.payload_table, format(
          '(s.id = $2 and s.origin is null or s.origin = $2) and case when s.token is not null then not $3
             else (select e.expires is null or e.expires > mbus.now() from mbus.%I e where e.id = s.id) end', t.payload_table))
        union all
        select mbus._skip_query(v_queue, t.ready_table, t.payload_table) where mbus._is_cursor(t.consumer_id)) q(query)
      where p_consumer_id is null or t.consumer_id = p_consumer_id
    loop
      for v_taken in execute v_table.query using array[v_table.consumer_id], p_number, p_is_idle loop
        if v_taken.token is null then v_parcel := v_taken.parcel; else v_parcel := mbus._tried(v_taken.parcel); end if;
        return next v_parcel;
        v_total := v_total + 1;
      end loop;
    end loop;
    return query select * from mbus._take_waiting(p_queue_id, p_consumer_id, p_number, p_is_idle);
    get diagnostics v_found = row_count;
    v_total := v_total + v_found;
    v_round := v_round + 1;
    exit when case when v_total = 0 then v_round > 1 else p_consumer_id is not null end;
  end loop;
end $$;

-- A query over the rows that a statement takes from a table of the ring and returns as id, token and leased_until: each row as a parcel,
-- with its token and the end of its lease if it is leased.  $1: the recipients of the parcels.
create or replace function mbus._parcel_query(p_queue mbus.queue, p_payload text, p_statement text) returns text
language sql stable set search_path from current as $$
  select format($query$
    with gone as (%1$s)
    select row(coalesce(g.origin, g.id), g.added, g.expires, g.headers, g.properties, g.trail, $1, %2$s)::mbus.parcel as parcel,
           d.token, d.leased_until
    from gone d cross join lateral (%3$s) g order by d.id$query$,
    p_statement, mbus._data_columns(p_queue.payload),
    case p_queue.mode when 'direct' then 'select d.*' else format('select e.* from mbus.%I e where e.id = d.id offset 0', p_payload) end)
$$;

-- The same for the rows s that fulfil a condition.
create or replace function mbus._take_query(p_queue mbus.queue, p_ready text, p_payload text, p_condition text) returns text
language sql stable set search_path from current as $$
  select mbus._parcel_query(p_queue, p_payload, format('delete from mbus.%I s where %s returning s.*', p_ready, p_condition))
$$;

-- Like mbus._take_query, for the message with a number ($2) that the cursor has not passed.
create or replace function mbus._skip_query(p_queue mbus.queue, p_ready text, p_payload text) returns text
language sql stable set search_path from current as $$
  select mbus._parcel_query(p_queue, p_payload, format(
    'insert into mbus.%1$I as s (id, origin) select - l.id, 0 from mbus.%2$I l where l.id = $2 and %3$s
       and (l.expires is null or l.expires > mbus.now()) returning - s.id as id, null::bigint as token, null::timestamptz as leased_until',
    p_ready, p_payload, mbus._ahead_condition(p_ready)))
$$;

-- The same for delayed, leased and dead messages.  A delayed message for several consumers is removed only for the given consumer.
create or replace function mbus._take_waiting(p_queue_id integer, p_consumer_id integer, p_number bigint, p_is_idle boolean)
returns setof mbus.parcel
language plpgsql set search_path from current as $$
declare
  v_everybody constant integer[] := array(select c.id from mbus.consumer c where c.queue_id = p_queue_id);
begin
  if p_consumer_id is not null then
    return query
    update mbus.delayed d
    set recipients = array_remove(coalesce(d.recipients, v_everybody), p_consumer_id)
    where d.queue_id = p_queue_id and d.number = p_number and d.consumer_id is null
      and (d.recipients is null or p_consumer_id = any (d.recipients))
      and (d.expires is null or d.expires > mbus.now())
    returning d.number, d.added, d.expires, d.headers, d.properties, d.trail, array[p_consumer_id],
              d.data_hstore, d.data_jsonb, d.data_text, d.data_bytea;
    delete from mbus.delayed d where d.queue_id = p_queue_id and d.number = p_number and d.recipients = '{}';
    return query
    update mbus.blocked b
    set recipients = array_remove(coalesce(b.recipients, v_everybody), p_consumer_id)
    where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null
      and (b.recipients is null or p_consumer_id = any (b.recipients))
      and (b.expires is null or b.expires > mbus.now())
    returning b.number, b.added, b.expires, b.headers, b.properties, b.trail, array[p_consumer_id],
              b.data_hstore, b.data_jsonb, b.data_text, b.data_bytea;
    delete from mbus.blocked b where b.queue_id = p_queue_id and b.number = p_number and b.recipients = '{}';
  end if;
  return query
  delete from mbus.delayed d
  where d.queue_id = p_queue_id and d.number = p_number and (p_consumer_id is null or d.consumer_id = p_consumer_id)
    and (d.expires is null or d.expires > mbus.now())
  returning d.number, d.added, d.expires, d.headers, d.properties, d.trail,
            case when d.consumer_id is null then coalesce(d.recipients, v_everybody) else array[d.consumer_id] end,
            d.data_hstore, d.data_jsonb, d.data_text, d.data_bytea;
  return query
  delete from mbus.blocked b
  where b.queue_id = p_queue_id and b.number = p_number and b.released_by is null and p_consumer_id is null
    and (b.expires is null or b.expires > mbus.now())
  returning b.number, b.added, b.expires, b.headers, b.properties, b.trail, coalesce(b.recipients, v_everybody),
            b.data_hstore, b.data_jsonb, b.data_text, b.data_bytea;
  if p_is_idle then return; end if;
  return query
  delete from mbus.leased l
  where l.queue_id = p_queue_id and l.number = p_number and (p_consumer_id is null or l.consumer_id = p_consumer_id)
  returning l.number, l.added, l.expires, l.headers, l.properties, l.trail, array[l.consumer_id],
            l.data_hstore, l.data_jsonb, l.data_text, l.data_bytea;
  return query
  delete from mbus.dmq q
  where q.queue_id = p_queue_id and q.number = p_number and (p_consumer_id is null or q.consumer_id = p_consumer_id)
  returning q.number, q.added, q.expires, q.headers, q.properties, q.trail, array[q.consumer_id],
            q.data_hstore, q.data_jsonb, q.data_text, q.data_bytea;
end $$;
