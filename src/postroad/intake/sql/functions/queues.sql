-- Creates the queue of notices and, with p_has_outbox, the outbox of RabbitMQ, unless they exist.
create or replace function intake.create_queues(p_has_outbox boolean) returns void
language plpgsql set search_path from current as $$
begin
  perform mbus.create_queue(qname => n.name, payload => 'jsonb')
  from unnest(case when p_has_outbox then '{file_events,file_events_amqp}' else '{file_events}' end::text[]) n(name)
  where not exists (select from mbus.queues q where q.queue = n.name);
end $$;

-- Returns the consumer of the outbox that the bridge p_bridge empties.  It is `default`, which exists as long as the queue,
-- so a notice that was posted before the bridge first ran is published too.  An older bridge keeps its own consumer; `default` is dropped
-- there, because no worker reads it.
create or replace function intake.outbox_consumer(p_bridge text) returns text
language plpgsql set search_path from current as $$
declare
  v_consumer    constant text := coalesce((select o.consumer from bridge.outlet o where o.name = p_bridge), 'default');
  v_has_default constant boolean := exists (
    select from mbus.consumers c where c.queue = 'file_events_amqp' and c.consumer = 'default');
begin
  if v_has_default and v_consumer <> 'default' then
    perform mbus.drop_consumer('file_events_amqp', 'default');
  elsif not v_has_default and v_consumer = 'default' then
    perform mbus.create_consumer('file_events_amqp', 'default');
  end if;
  return v_consumer;
end $$;
