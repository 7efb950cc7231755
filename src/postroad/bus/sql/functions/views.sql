-- Creates a view of a queue that ordinary users can be granted: selecting shows the messages that are ready
-- for the consumer, without taking them; inserting posts.  Permissions are granted on the view itself.
-- Default name: public.<qname>_q.
create or replace function mbus.create_view(
  qname text, cname text default 'default', sname text default 'public', viewname text default null) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_name     constant text := coalesce(viewname, qname || '_q');
  v_view     constant text := format('%I.%I', sname, v_name);
begin
  if v_consumer.contract = 'cursor' then perform mbus._refuse_cursor(qname, 'views'); end if;
  if not exists (select from pg_namespace where nspname = sname) then
    raise exception 'schema "%" does not exist', sname using errcode = 'MB012', hint = 'Create it first.';
  end if;
  if exists (select from pg_class c where c.relnamespace = to_regnamespace(quote_ident(sname)) and c.relname = v_name::name and not exists (
      select from pg_trigger t where t.tgrelid = c.oid and t.tgfoid = to_regproc(format('mbus.%I', '_view_' || qname)))) then
    raise exception '% exists and is not a view of queue "%"', v_view, qname
      using errcode = 'MB012', hint = 'Drop it, or choose another name for the view (fourth argument).';
  end if;
  if not (has_schema_privilege(sname, 'create') and has_schema_privilege(sname, 'usage')) then
    raise exception 'the owner of schema mbus may not create views in schema "%"', sname
      using errcode = 'MB013', hint = format('grant usage, create on schema %I to %I', sname, current_user);
  end if;
  -- All lanes and slots are created now, so that the view includes those that are used later.
  perform mbus._add_feature(v_queue.id, 'high');
  perform mbus._add_feature(v_queue.id, 'low');
  v_queue := mbus._queue(qname);
  for v_slot in 0 .. v_queue.slots - 1 loop
    perform mbus._create_slot(v_queue, v_slot);
  end loop;
  perform mbus._build_view(v_queue, v_consumer, v_view);
  execute mbus._fill('view_trigger', mbus._queue_values(v_queue));
  execute format('revoke all on function mbus.%I() from public', '_view_' || qname);
  execute format('create or replace trigger post instead of insert on %s for each row execute function mbus.%I(%L)',
    v_view, '_view_' || qname, cname);
end $$;

-- The view calls no function of the bus, because the function would run with the permissions of the view's user.
create or replace function mbus._build_view(p_queue mbus.queue, p_consumer mbus.consumer, p_view text) returns void
language plpgsql set search_path from current as $$
begin
  execute format('create or replace view %s as ', p_view) || (
    select string_agg(format(
      'select %L || coalesce(l.origin, l.id) || %L as iid, l.added, (l.trail ->> ''delayed_until'')::timestamptz as delayed_until, l.expires, '
      || 'l.headers, l.properties, l.data from mbus.%I s join mbus.%I l on l.id = s.id '
      || 'where s.token is null and (l.expires is null or l.expires > clock_timestamp())',
      p_queue.name || '.', '@' || n.name, t.ready_table, t.payload_table), ' union all ')
    from mbus._tables(p_queue) t cross join mbus.node n where t.consumer_id = p_consumer.id);
end $$;

-- The views of a queue after it has become a fanout queue.  They are found by their trigger, whose argument is
-- the consumer.
create or replace function mbus._rebuild_views(p_queue mbus.queue) returns void
language sql set search_path from current as $$
  select mbus._build_view(p_queue, c, format('%I.%I', s.nspname, r.relname))
  from pg_trigger t
  join pg_class r on r.oid = t.tgrelid
  join pg_namespace s on s.oid = r.relnamespace
  join mbus.consumer c on c.queue_id = p_queue.id and convert_to(c.name, 'UTF8') || '\x00' = t.tgargs
  where t.tgfoid = to_regproc(format('mbus.%I', '_view_' || p_queue.name))
$$;
