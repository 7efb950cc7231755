-- A template with its placeholders {name} filled.  Other braces are not changed, nor is the inserted text.
create or replace function mbus._fill(p_template text, p_values jsonb) returns text
language sql stable set search_path from current as $$
  select string_agg(case
      when u.place = 1 then u.part
      when p_values ? k.key then coalesce(p_values ->> k.key, '') || substr(u.part, length(k.key) + 2)
      else '{' || u.part end, '' order by u.place)
  from mbus.template t
  cross join unnest(string_to_array(t.body, '{')) with ordinality u(part, place)
  cross join lateral (select substring(u.part from '^([a-z_]+)}') as key) k
  where t.name = p_template
$$;

-- The inserts of a fanout post, one per consumer, as parts of a WITH clause.
create or replace function mbus._deliveries(p_template text, p_queue mbus.queue, p_lane text, p_slot bigint) returns text
language sql stable set search_path from current as $$
  select string_agg(
    mbus._fill(p_template, jsonb_build_object('consumer_id', c.id,
      'moved', case c.contract when 'cursor' then ' and s.origin is not null' end,    -- see internal/cursor.sql
      'source', case when c.selector is null then 'unnest(v_ids) i(id)'
                     else 'generate_series(1, v_count) p(place) cross join lateral (select v_ids[p.place] as id) i where v_hits_' || c.id || '[p.place]' end,
      'ready', quote_ident(mbus._ready_name(p_queue, c.name, p_lane, p_slot)))), '' order by c.id)
  from mbus.consumer c
  where c.queue_id = p_queue.id and p_queue.mode = 'fanout' and (p_template = 'delivery' or c.contract = 'message')
$$;

-- The template once per cell of the ring (slot + slots × lane), as branches of a CASE.  Static SQL per table keeps plans cached.
create or replace function mbus._branches(p_template text, p_queue mbus.queue, p_consumer mbus.consumer, p_values jsonb) returns text
language sql stable set search_path from current as $$
  select string_agg(
    mbus._fill(p_template, v.values || jsonb_build_object('ahead', case
      when p_template = 'take_cell' and p_consumer.contract = 'cursor' and not k.is_lease then mbus._fill('take_ahead', v.values) end)),
    e'\n' order by l.lane, s.slot)
  from generate_series(0, p_queue.slots - 1::bigint) s(slot) cross join unnest(p_queue.lanes) l(lane)
  cross join (select coalesce((p_values ->> 'is_lease')::boolean, false) as is_lease) k
  cross join lateral (select s.slot + p_queue.slots * (array_position('{normal,high,low}', l.lane) - 1) as cell,
                             mbus._log_name(p_queue, l.lane, s.slot) as log,
                             mbus._ready_name(p_queue, p_consumer.name, l.lane, s.slot) as ready) n
  cross join lateral (
    select p_values || jsonb_build_object(
      'cell',  n.cell,
      'removal', case when k.is_lease then format(
        e'update mbus.%I s\n          set token = nextval(''mbus.lease_token'') * 262144 + %s, leased_until = v_until    -- see mbus._claims',
        n.ready, (p_consumer.id & 255) * 1024 + n.cell) else format('delete from mbus.%I s', n.ready) end,
      'log',   quote_ident(n.log),
      'ready', quote_ident(n.ready),
      'hint',  quote_ident(n.ready || '$hint'),
      -- A fanout queue has narrow ready rows, and the messages in its log.  offset 0 keeps the planner from scanning the log, which
      -- contains messages that were consumed long ago.
      'message', case p_queue.mode when 'direct' then 'r' else 'l' end,
      'lateral', case p_queue.mode when 'fanout' then format(
        e'\n            cross join lateral (select e.expires, e.headers from mbus.%I e where e.id = r.id offset 0) l', n.log) end,
      'returned', 's.id, s.origin' || case p_queue.mode when 'direct'
        then ', s.added, s.expires, s.headers, s.properties, s.trail, s.data' else '' end || case when k.is_lease then ', s.token' else '' end,
      'leased', case when k.is_lease then format(', %s.token, mbus._attempts(g.trail) + 1, v_until', case p_queue.mode when 'direct' then 'g' else 'd' end) end,
      -- The log is read for each message only if it may contain an expired one, or one of a group, see mbus._add_feature.
      'allowed', case p_queue.mode when 'direct' then '(r.expires is null or r.expires > v_now) and r.headers -> ''group'' is null' else format(
        e'(\n              not (select q.has_groups or exists (select from mbus.%1$I e where e.expires <= v_now) from mbus.queue q where q.id = %2$s)\n'
        '              or (select (e.expires is null or e.expires > v_now) and e.headers -> ''group'' is null from mbus.%1$I e where e.id = r.id))',
        n.log, p_queue.id) end,
      -- One scan of the index finds an array of ids.
      'taken', case when p_queue.mode = 'direct' then 'gone g' else format(case when k.is_lease then 'gone d join mbus.%I g on g.id = d.id'
        else '(select e.* from mbus.%I e where e.id = any (array(select d.id from gone d))) g' end, n.log) end,
      'note_taken', case when p_values ->> 'returns' <> 'setof mbus.parcel' and not k.is_lease then mbus._fill('note_taken', p_values || jsonb_build_object(
        'trail', case p_queue.mode when 'direct' then 'n.trail' else format('(select l.trail from mbus.%I l where l.id = n.id)', n.log) end)) end,
      'deliveries', case when p_template = 'put_fanout' then mbus._deliveries('delivery', p_queue, l.lane, s.slot)
                         when p_template = 'post_plain_put' and p_queue.mode = 'fanout'
                         then concat(e'\n        continue when not found;\n', rtrim(mbus._deliveries('post_delivery', p_queue, l.lane, s.slot), e'\n')) end,
      'bulk_deliveries', case when p_template = 'postn_fanout' then mbus._deliveries('bulk_delivery', p_queue, l.lane, s.slot) end) as values) v
$$;

-- The data of a row g of the ring as the four columns of a parcel.
create or replace function mbus._data_columns(p_payload text) returns text
language sql immutable set search_path from current as $$
  select string_agg(case when t = p_payload then 'g.data' else 'null::' || t end, ', ' order by n)
  from unnest('{hstore,jsonb,text,bytea}'::text[]) with ordinality u(t, n)
$$;

create or replace function mbus._queue_values(p_queue mbus.queue) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'queue', p_queue.name, 'queue_id', p_queue.id, 'slots', p_queue.slots, 'has_groups', p_queue.has_groups,
    'payload', p_queue.payload, 'data', 'data_' || p_queue.payload,
    'model', mbus._model(p_queue.payload),
    -- A message in the form for workers: headers is null if it would only contain the constants and the time of posting.  The client adds
    -- these, because building them in the server takes longer than the rest of the message.
    'columns_delivered', 'id bigint, added timestamptz, iid text, delayed_until timestamptz, expires timestamptz, received integer[], '
      || 'headers hstore, properties hstore, data ' || p_queue.payload || ', constants text',
    'lease_model', replace(mbus._model(p_queue.payload), 'qt', 'lease'),
    'columns_leased', 'token bigint, attempt integer, leased_until timestamptz',
    'position', quote_ident('qs$' || p_queue.name || '$position'),
    'head', quote_ident('qs$' || p_queue.name || '$head'),
    'tail', quote_ident('qs$' || p_queue.name || '$tail'),
    'settled', quote_ident('qs$' || p_queue.name || '$settled'),
    'lanes', quote_literal(p_queue.lanes::text),
    'lane_order', quote_literal((
       select array_agg(array_position('{normal,high,low}', lane) - 1
                        order by array_position('{high,normal,low}', lane))
       from unnest(p_queue.lanes) lane)::text),
    'node', (select name from mbus.node where is_only),
    'parameters', (select string_agg(case when t = p_queue.payload then '$1' else 'null' end, ', ' order by n)
                   from unnest('{hstore,jsonb,text,bytea}'::text[]) with ordinality u(t, n)),
    'columns', mbus._data_columns(p_queue.payload),
    'constants', quote_literal(mbus._constants(p_queue.name)))
$$;

create or replace function mbus._queue_functions(p_queue text) returns text[]
language sql immutable set search_path from current as $$
  select array['post_' || p_queue, 'postn_' || p_queue, 'peek_' || p_queue, 'take_' || p_queue,
               'clear_queue_' || p_queue, 'run_on_' || p_queue, '_put_' || p_queue, '_match_' || p_queue,
               '_follow_' || p_queue]
$$;

create or replace function mbus._consumer_functions(p_queue text, p_consumer text) returns text[]
language sql immutable set search_path from current as $$
  select array_agg(prefix || p_queue || '_by_' || p_consumer)
  from unnest('{consume_,consumen_,batch_,take_from_,lease_,leasen_,_take_,ackn_}'::text[]) prefix
$$;

-- The names of all functions of a queue.  They are looked up one by one, because a database with many queues has many functions.
create or replace function mbus._functions(p_queue mbus.queue) returns table (name text, consumer text)
language sql stable set search_path from current as $$
  select unnest(mbus._queue_functions(p_queue.name)), null
  union all
  select unnest(mbus._consumer_functions(p_queue.name, c.name)), c.name from mbus.consumer c where c.queue_id = p_queue.id
$$;

-- (Re)creates every function of a queue.  Messages are not touched.
create or replace function mbus._generate(p_queue mbus.queue) returns void
language plpgsql set search_path from current set check_function_bodies = off as $$
declare
  v_values   jsonb := mbus._queue_values(p_queue);
  v_hits     jsonb := mbus._hit_values(p_queue, v_values);
  v_default  mbus.consumer;
  v_conform  constant text := case when p_queue.schema is not null then format(e'  perform mbus._conform(%s, %s);\n', p_queue.id,
    case p_queue.payload when 'hstore' then 'hstore_to_jsonb(d)' when 'jsonb' then 'd' else 'to_jsonb(d)' end) end;
  v_is_chosen constant boolean := exists (select from mbus.consumer c where c.queue_id = p_queue.id and c.selector is not null);
  v_everybody constant text := (select quote_literal(coalesce(array_agg(c.id), '{}')::text) from mbus.consumer c
                                where c.queue_id = p_queue.id and c.selector is null);
begin
  execute mbus._fill('match', v_values || jsonb_build_object(
    'choices', (select string_agg(mbus._fill('choice', jsonb_build_object('consumer_id', c.id, 'selector', c.selector)), e'\n' order by c.id)
                from mbus.consumer c where c.queue_id = p_queue.id and c.selector is not null),
    'headers', case when exists (select from mbus.consumer c where c.queue_id = p_queue.id and mbus._reads_headers(c.selector))
                    then mbus._fill('headers_delivered', v_values || '{"added": "p_parcel.added", "headers": "p_parcel.headers"}')
                    else 'p_parcel.headers' end,
    'everybody', v_everybody));
  select * into v_default from mbus.consumer where queue_id = p_queue.id order by id limit 1;
  execute mbus._fill('put', v_values || jsonb_build_object(
    'recipients', case p_queue.mode when 'fanout' then mbus._fill('recipients', jsonb_build_object(
      'chosen', case when v_is_chosen then format('mbus.%I(p_parcel, v_number)', '_match_' || p_queue.name) else v_everybody end)) end,
    'branches', mbus._branches('put_' || p_queue.mode, p_queue, v_default, v_values)));
  if p_queue.has_followers then
    execute mbus._fill('follow', v_values || jsonb_build_object('triggers', (
      select string_agg(mbus._fill('follow_trigger', v_values || jsonb_build_object(
        'destination', d.name, 'destination_id', d.id, 'selector', coalesce(f.selector, 'true'))), e'\n' order by f.id)
      from mbus.follower f join mbus.queue d on d.id = f.destination_id where f.queue_id = p_queue.id)));
  end if;
  execute mbus._fill('postn', v_values || jsonb_build_object(
    'followed', case when p_queue.has_followers then 'true or ' end,
    'conform', replace(v_conform, ';', ' from unnest($1) d;'),
    'branches', mbus._branches('postn_' || p_queue.mode, p_queue, v_default, v_values || v_hits)) || v_hits);
  execute mbus._fill('post', v_values || jsonb_build_object(
    'conform', replace(v_conform, 'd)', '$1)'),
    'put', mbus._fill('post_put', v_values || jsonb_build_object(
      'follow', case when p_queue.has_followers then mbus._fill('post_follow', v_values) end)),
    'plain', mbus._fill(
      case when p_queue.has_followers then 'post_plain_followed' when v_is_chosen then 'post_plain_chosen' else 'post_plain' end,
      v_values || jsonb_build_object('branches', mbus._branches('post_plain_put', p_queue, v_default, v_values)))));
  execute mbus._fill('peek', v_values);
  execute mbus._fill('take_all', v_values || jsonb_build_object(
    'when_running', case when exists (select from mbus.pause p where p.queue_id = p_queue.id) then ' where false' end));
  execute mbus._fill('clear_queue', v_values);
  if to_regproc(format('mbus.%I', 'run_on_' || p_queue.name)) is not null then
    execute mbus._fill('run_on', v_values);
  end if;
  perform mbus._generate_consumer(p_queue, c, v_values) from mbus.consumer c where c.queue_id = p_queue.id;
  perform mbus._grant(p_queue);
end $$;

create or replace function mbus._generate_consumer(p_queue mbus.queue, p_consumer mbus.consumer, p_values jsonb) returns void
language plpgsql set search_path from current as $$
declare
  v_is_paused constant boolean := exists (
    select from mbus.pause p where p.queue_id = p_queue.id and coalesce(p.consumer_id, p_consumer.id) = p_consumer.id);
  v_values jsonb := p_values || jsonb_build_object(
    'consumer', p_consumer.name, 'consumer_id', p_consumer.id, 'when_running', case when v_is_paused then ' where false' end,
    'paused', case when v_is_paused then e'  return;    -- see mbus.pause\n' end);
begin
  if p_queue.has_waiters then
    execute mbus._fill('batch_waited', v_values || jsonb_build_object('output', mbus._fill('output_message', v_values)));
  else
    perform mbus._generate_take(p_queue, p_consumer, v_values, 'batch_');
  end if;
  perform mbus._generate_take(p_queue, p_consumer, v_values, '_take_');
  if p_queue.has_groups then
    execute mbus._fill('lease_grouped', v_values);
  else
    perform mbus._generate_take(p_queue, p_consumer, v_values, 'leasen_');
  end if;
  v_values := v_values || jsonb_build_object('delivered', mbus._fill('delivered', v_values));
  execute mbus._fill('consume', v_values);
  execute mbus._fill('consumen', v_values);
  execute mbus._fill('lease', v_values);
  execute mbus._fill('ack', v_values || jsonb_build_object('branches', mbus._branches('ack_cell', p_queue, p_consumer, v_values),
    'tally', mbus._fill('tally', v_values || '{"count": "v_count"}'),
    'done', case when p_queue.has_waiters then mbus._fill('ack_done', v_values) end));
  execute mbus._fill('take_from', v_values);
end $$;

-- The function that takes is generated twice, with the rows as messages (batch_) and as parcels (_take_), because converting them
-- afterwards would copy every payload again.  Leasing (leasen_) uses the same template and keeps the rows.
create or replace function mbus._generate_take(p_queue mbus.queue, p_consumer mbus.consumer, p_values jsonb, p_prefix text) returns void
language plpgsql set search_path from current as $$
declare
  v_kind   constant text := case when p_queue.has_groups then 'take_grouped' else 'take' end;
  v_is_lease  constant boolean := p_prefix = 'leasen_';
  v_is_parcel constant boolean := p_prefix = '_take_';
  -- mbus.purge takes parcels without limits; a queue with groups or waiters takes all messages as parcels.
  v_limit     constant mbus.consumer_limit := (
    select l from mbus.consumer_limit l
    where l.consumer_id = p_consumer.id and (not v_is_parcel or p_queue.has_groups or p_queue.has_waiters));
  v_has_key   constant boolean := v_limit.key is not null and not p_queue.has_groups;
  v_values constant jsonb := p_values || jsonb_build_object(
    'is_lease', v_is_lease, 'function', p_prefix || p_queue.name || '_by_' || p_consumer.name,
    'declared', concat(
      case when v_has_key then e'  v_chosen     bigint[];\n' end,
      case when v_is_lease then e'  v_until      constant timestamptz := v_now\n    + case when ttl > interval ''0'' and ttl < interval ''1 year'' then ttl else mbus._check_ttl(ttl) end;\n' end,
      case when p_consumer.contract = 'cursor' then e'  v_bound      bigint;\n  v_from       bigint;\n' end,
      case when p_queue.has_groups then mbus._fill('take_grouped_declared', p_values) else e'  v_hint       bigint;\n' end),
    'cursor', case when p_consumer.contract = 'cursor' then mbus._fill(case when v_is_lease then 'lease_ahead' else 'take_bound' end, p_values) end,
    'returns', case when v_is_parcel then 'setof mbus.parcel'
                    else format('table (%s)', concat_ws(', ', p_values ->> 'columns_delivered', case when v_is_lease then p_values ->> 'columns_leased' end)) end,
    'output', mbus._fill(case when v_is_parcel then 'output_parcel' else 'output_message' end, p_values),
    -- mbus.purge takes parcels of a paused consumer, too.
    'paused', concat(case when not v_is_parcel then p_values ->> 'paused' end, case when v_limit.consumer_id is not null then
      format(e'  amt := mbus._admit(%s, amt);    -- see mbus.limit_consumer\n  v_missing := amt;\n', p_consumer.id) end,
      case when v_has_key then format(e'  v_chosen := mbus._choose(%s, amt);\n', p_consumer.id) end),
    'chosen', case when v_has_key then ' and r.id = any (v_chosen)' end,
    'promise', case when v_is_lease then 'Leases' else 'Removes' end,
    'arguments', 'amt integer' || case when v_is_lease then ', ttl interval' else '' end,
    -- Messages taken as parcels are counted by the function that takes them, leased messages when they are acked.
    'tally', case when v_limit.consumer_id is not null then format(e'  perform mbus._return(%s, v_missing);\n', p_consumer.id) else '' end
      || case when v_is_parcel or v_is_lease then ''
                  else mbus._fill('tally', p_values || '{"count": "amt - v_missing"}') end);
begin
  execute mbus._fill('take', v_values || jsonb_build_object(
    'first', case when not p_queue.has_groups then v_values ->> 'cursor' else mbus._fill('take_grouped_first', v_values || jsonb_build_object(
      'hint', quote_ident(mbus._ready_name(p_queue, p_consumer.name, 'normal', 0) || '$hint'),
      'note_retries', case when not v_is_parcel then format(e'  perform mbus._note_taken(v_retries, %s);\n', p_consumer.id) end)) end,
    'slot', mbus._fill(v_kind || '_slot', v_values || jsonb_build_object('branches',
      mbus._branches(v_kind || '_cell', p_queue, p_consumer, v_values)))));
end $$;

-- True if a selector may read the headers, by name or because it uses the whole row.  Only these selectors get the headers as delivered,
-- which takes time; most selectors read only the data.
create or replace function mbus._reads_headers(p_selector text) returns boolean
language sql immutable set search_path from current as $$ select p_selector ~* '\mheaders\M|\mt\M(?!\s*\.)|\.\s*\*' $$;

-- The selectors in postn_<q>: an array of results for each consumer with a selector, and the parts of the function that use it.
create or replace function mbus._hit_values(p_queue mbus.queue, p_values jsonb) returns jsonb
language sql stable set search_path from current as $$
  select jsonb_build_object(
    'hit_declarations', string_agg('  v_hits_' || c.id || ' boolean[];', e'\n' order by c.id),
    'any_hit', case when count(*) = (select count(*) from mbus.consumer w where w.queue_id = p_queue.id) then string_agg('v_hits_' || c.id || '[m.place]', ' or ' order by c.id) else 'true' end,
    'hits', string_agg(mbus._fill('postn_hits', p_values || jsonb_build_object(
              'consumer_id', c.id, 'selector', c.selector,
              'headers', case when mbus._reads_headers(c.selector)
                              then mbus._fill('headers_delivered', p_values || '{"added": "v_now", "headers": "m.headers"}')
                              else 'null::hstore' end)), '' order by c.id))
  -- If every consumer has a selector, messages without a recipient are not stored.
  from mbus.consumer c where c.queue_id = p_queue.id and c.selector is not null
$$;

-- Grants the functions of a queue to its roles.
create or replace function mbus._grant(p_queue mbus.queue) returns void
language plpgsql set search_path from current as $$
declare
  v_always   text[] := array[mbus._role('admin')]
                    || case when p_queue.is_roles_security_model then '{}' else array[mbus._role('user')] end;
  v_consumers text[] := array(select mbus._consume_role(p_queue.name, c.name) from mbus.consumer c where c.queue_id = p_queue.id);
begin
  perform mbus._disallow(format('mbus.%I(text)', 'take_' || p_queue.name)::regprocedure, v_consumers) where cardinality(v_consumers) > 1;
  perform mbus._allow(p.oid, case
    when n.name like '\_%' then '{}'
    when n.consumer is not null then v_always || mbus._consume_role(p_queue.name, n.consumer)
    when n.name in ('post_' || p_queue.name, 'postn_' || p_queue.name) then v_always || mbus._post_role(p_queue.name)
    when n.name = 'run_on_' || p_queue.name then v_always || mbus._consume_role(p_queue.name, 'default')
    when n.name = 'peek_' || p_queue.name then v_always || v_consumers
    -- A message is taken from all its consumers, so permission for one is enough only if it is the only one.
    when n.name = 'take_' || p_queue.name and cardinality(v_consumers) = 1 then v_always || v_consumers
    else v_always end)
  from mbus._functions(p_queue) n join pg_proc p on p.proname = n.name and p.pronamespace = 'mbus'::regnamespace;
end $$;
