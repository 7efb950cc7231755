-- Makes a view of a queue that ordinary users can be granted: selecting shows the messages that are ready
-- for the consumer, without taking them; inserting posts.  Its rights are the view's own.
-- Default name: public.<qname>_q.
create or replace function mbus.create_view(
  qname text, cname text default 'default', sname text default 'public', viewname text default null)
returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue    mbus.queue := mbus._queue(qname);
  v_consumer mbus.consumer := mbus._consumer(v_queue, cname);
  v_view     constant text := format('%I.%I', sname, coalesce(viewname, qname || '_q'));
begin
  if not exists (select from pg_namespace where nspname = sname) then
    raise exception 'schema "%" does not exist', sname using errcode = 'MB012', hint = 'Create it first.';
  end if;
  -- All slots are made, so that the view covers those that rotation reaches later.
  for v_slot in 0 .. v_queue.slots - 1 loop
    perform mbus._create_slot(v_queue, v_slot);
  end loop;
  execute format('create or replace view %s as ', v_view) || (
    select string_agg(format(
      'select mbus._iid(%L, coalesce(l.origin, l.id)) as iid, l.added, null::timestamptz as delayed_until, l.expires, '
      || 'l.headers, l.properties, l.data from mbus.%I s join mbus.%I l on l.id = s.id',
      qname, t.ready_table, t.payload_table), ' union all ')
    from mbus._tables(v_queue) t where t.consumer_id = v_consumer.id);
  execute mbus._fill('view_trigger', mbus._queue_values(v_queue));
  execute format('revoke all on function mbus.%I() from public', '_view_' || qname);
  execute format('create or replace trigger post instead of insert on %s for each row execute function mbus.%I()',
    v_view, '_view_' || qname);
end $$;
