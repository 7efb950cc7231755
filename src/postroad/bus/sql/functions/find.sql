-- Finds messages by values that they share with others, see mbus._link_expressions.

-- The tables with the stored messages of a queue: retained segments and those of its ring.
create or replace function mbus._stored_tables(p_queue mbus.queue) returns table (name text)
language sql stable set search_path from current as $$
  select format('qr$%s', r.id) from mbus.retained r where r.queue_id = p_queue.id
  union
  select t.payload_table from mbus._tables(p_queue) t
$$;

-- The latest amt messages of queues with track whose business key, trace id, correlation or iid is one of the given texts: stored messages,
-- and those that are delayed, blocked, leased or dead.  Read-only.
--   iid    that of the message
--   links  its business key, trace id, correlation, and the iid of the message that it is a copy of; null if it has none
create or replace function mbus.find(keys text[], amt integer default 100)
returns table (queue text, iid text, added timestamptz, links text[])
language plpgsql stable security definer set search_path from current set enable_seqscan = off set jit = off as $$
declare
  v_keys  constant text[] := array(select left(k, 100) from unnest(keys) k where k <> '');
  v_queue mbus.queue;
  v_links text[];
  v_parts text[] := '{}';
begin
  perform mbus._check_amount(amt);
  for v_queue in select * from mbus.queue q where q.track is not null loop
    v_links := mbus._link_expressions(v_queue.payload, v_queue.track);
    -- Sorted by an expression: with the index on id, a search for the latest would read the whole table.
    select v_parts || array_agg(format(
      '(select %L as queue, %s as number, g.added, array[%s, coalesce(g.headers -> ''origin_iid'', g.headers -> ''moved_from'')] as links from %s
        where (%s) %s order by g.id + 0 desc limit $2)',
      v_queue.name, s.number, array_to_string(v_links, ', '), s.source,
      (select string_agg(format('%s = any ($1)', e), ' or ') from unnest(v_links) e), s.more))
    into v_parts
    from (
      select 'coalesce(g.origin, g.id)' as number, format('mbus.%I g', t.name) as source, '' as more from mbus._stored_tables(v_queue) t
      union all
      select 'g.number', format('(select %s as id, a.queue_id, a.number, a.added, a.headers, a.properties, a.%I as data from mbus.%I a) g',
                                case a.name when 'leased' then 'a.token' else 'a.id' end, 'data_' || v_queue.payload, a.name),
             format('and g.queue_id = %s', v_queue.id)
      from unnest('{delayed,blocked,leased,dmq}'::text[]) a(name)) s;
  end loop;
  if v_parts = '{}' then return; end if;
  return query execute format($query$
    select f.queue, mbus._iid(f.queue, f.number), f.added, f.links
    from (select distinct on (m.queue, m.number) m.* from (%s) m order by m.queue, m.number, m.added) f
    order by f.added desc, f.number desc limit $2$query$, array_to_string(v_parts, ' union all '))
  using v_keys, amt;
end $$;
