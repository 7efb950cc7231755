-- Takes a batch from the consumer of an outlet in the caller's transaction, which stays open until the target has
-- committed it.  Messages that the target has seen before are consumed and left out.
-- p_database and p_node name the target; null for a broker.
-- Everything is text, so that a bridge need not parse it.  iids: the iids of the messages in this database;
-- ids: their first iids with the database they were posted in, for bridge.receive.  Errors: MR001, and those of taking.
create or replace function bridge.take(p_outlet text, p_amount integer, p_database text default null, p_node text default null)
returns table (batch bigint, messages integer, looped integer, iids text[], ids text[], data text[], headers text[],
               properties text[], expires timestamptz[], delayed timestamptz[])
language plpgsql security definer set search_path from current as $$
declare
  v_outlet constant bridge.outlet := bridge._outlet(p_outlet);
  v_here   constant text := bridge._here();
  v_own    constant text := array[current_database()::text]::text;
  v_grouped boolean;
  v_part    record;
  -- The rows are already in order, and array_agg keeps the order of rows, so no sort is needed.
  v_query   constant text := format($query$
    with taken as materialized (
      select t.iid, t.headers, t.properties, t.expires, t.delayed_until, t.data, coalesce(%s, false) as is_loop
      from mbus.%I($1) t)
    select (select count(*) from taken)::integer as found, (select count(*) from taken where is_loop)::integer as looped,
           array_agg(iid) as iids, array_agg(bridge._origin_id(headers, iid)) as ids, array_agg(data::text) as data,
           array_agg(bridge._outgoing(headers, iid, $2)::text) as headers, array_agg(properties::text) as properties,
           array_agg(expires) as expires, array_agg(delayed_until) as delayed
    from taken where not is_loop$query$,
    -- Only a message that came over a bridge needs the full check.
    case when p_node is null then 'false'
         else '(t.headers ? ''seenby_nodes'' or t.headers -> ''seenby'' <> $5) and bridge._has_seen(t.headers, $3, $4)' end,
    'consumen_' || v_outlet.queue || '_by_' || v_outlet.consumer);
begin
  select q.has_groups into v_grouped from mbus.queue q where q.name = v_outlet.queue;
  messages := 0; looped := 0;
  loop
    execute v_query into v_part using p_amount - messages - looped, v_here, p_database, p_node, v_own;
    looped := looped + v_part.looped;
    iids := iids || v_part.iids; ids := ids || v_part.ids; data := data || v_part.data; headers := headers || v_part.headers;
    properties := properties || v_part.properties; expires := expires || v_part.expires; delayed := delayed || v_part.delayed;
    messages := messages + v_part.found - v_part.looped;
    -- A take gives one message of each group; in the same transaction the next take gives their successors.
    exit when v_part.found = 0 or not v_grouped or messages + looped >= p_amount;
  end loop;
  if messages + looped > 0 then
    batch := nextval('bridge.batch');
    insert into bridge.sent (outlet_id, batch, sent_at, messages, looped)
    values (v_outlet.id, take.batch, bridge.now(), take.messages, take.looped);
  end if;
  return next;
end $$;
