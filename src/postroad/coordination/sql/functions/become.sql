-- Makes this database a Writer, a Coordinator or a Reader under a name, with the queues that the role needs.  Idempotent.
-- Without a name the current one stays; a new Writer is called writer, a new Coordinator main.
-- Raises PC002 for an unknown role, PC009 if a Writer and a Reader would share a database or the name differs, PC006 for a name that is not
-- valid for a consumer, or that of a bridge.
create or replace function coordination.become(p_role text, p_name text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_name  text;
  v_other text;
  v_queue record;
begin
  perform coordination._refuse_if(p_role not in ('writer', 'coordinator', 'reader'), 'PC002', format('unknown role %s', p_role),
    'writer, coordinator or reader');
  perform coordination._lock(0);
  select n.name into v_name from coordination.node n where n.role = p_role;
  p_name := coalesce(p_name, v_name, case p_role when 'writer' then 'writer' when 'coordinator' then 'main' else '' end);
  perform coordination._refuse_if(p_name !~ '^[a-z][a-z0-9_]{0,11}$', 'PC006', format('invalid name %s of a %s', left(p_name, 80), p_role),
    'lower-case letters, digits and underscores, 12 at most');
  perform coordination._refuse_if(p_role = 'reader' and p_name in ('main', 'writer') and v_name is null,
    'PC006', format('a Reader cannot be called %s', p_name), 'the bridges of the Coordinator and the Writer have this name; choose another one');
  perform coordination._refuse_if(v_name is not null and v_name <> p_name,
    'PC009', format('this database is the %s %s already', p_role, v_name), 'use that name, or another database');
  select n.role into v_other from coordination.node n
  where n.role <> p_role and p_role <> 'coordinator' and n.role <> 'coordinator';
  perform coordination._refuse_if(v_other is not null, 'PC009', format('this database is a %s already', v_other),
    'a Writer and a Reader keep the same tables; use a separate database for each');
  if v_name is null then
    insert into coordination.node (role, name) values (p_role, p_name);
  end if;
  -- The queues that the role posts to, and those that it consumes under its own name.
  for v_queue in
    select u.* from (values ('writer', 'co_events', false), ('writer', 'co_decide', true),
      ('coordinator', 'co_events', true), ('coordinator', 'co_votes', true),
      ('coordinator', 'co_decide', false), ('reader', 'co_votes', false), ('reader', 'co_decide', true)) u (role, name, is_consumed)
    where u.role = p_role
  loop
    if not exists (select from mbus.queue q where q.name = v_queue.name) then
      perform mbus.create_queue(v_queue.name, payload => 'jsonb');
    end if;
    if v_queue.is_consumed and not exists (
      select from mbus.consumer c join mbus.queue q on q.id = c.queue_id where q.name = v_queue.name and c.name = p_role)
    then
      perform mbus.create_consumer(v_queue.name, p_role);
    end if;
    perform coordination.drop_idle_consumer(v_queue.name);
  end loop;
  if p_role = 'reader' then
    insert into coordination.progress default values on conflict do nothing;
  end if;
end $$;

-- Drops the unused consumer `default` as soon as the queue has the consumer of a service or a bridge.
create or replace function coordination.drop_idle_consumer(p_queue text) returns void
language plpgsql security definer set search_path from current as $$
begin
  perform mbus.drop_consumer(p_queue, c.name)
  from mbus.consumer c join mbus.queue q on q.id = c.queue_id
  where q.name = p_queue and c.name = 'default' and exists (
    select from mbus.consumer o where o.queue_id = c.queue_id and o.name <> 'default');
end $$;
