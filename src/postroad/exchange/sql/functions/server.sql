-- A server takes over: a new generation, after all calls of the old one have ended.
-- A journal belongs to one root.  It is bound to another only while it holds no message.
-- Errors: MX002 the root is another journal's.
create or replace function exchange.take_over(
  p_root_id uuid, p_holder text, p_started_timeout double precision, p_ready_timeout double precision,
  p_defer_delay double precision, p_suspect_after integer, p_failed_policy text, p_events_kept interval,
  p_root_path text default null)
returns exchange.server
language plpgsql volatile set search_path from current as $$
declare
  v_server exchange.server;
begin
  perform pg_advisory_xact_lock(exchange._lock_class(), 0);
  select s.* into v_server from exchange.server s for update;
  if v_server.root_id is distinct from p_root_id and exists (select from exchange.message) then
    raise exception 'the messages of this database lie in another root folder'
      using errcode = 'MX002', hint = 'Give --root the folder that was used before, or use another database.';
  end if;
  -- Created here and not at install: the names of its roles hold the database's, which a clone changes.
  if not exists (select from mbus.queue q where q.name = 'exchange_events') then
    perform mbus.create_queue('exchange_events', payload => 'jsonb');
  end if;
  update exchange.server s
  set root_id = p_root_id, root_path = p_root_path, epoch = s.epoch + 1, holder = p_holder, started_at = exchange.now(), seen_at = exchange.now(),
      started_timeout = p_started_timeout, ready_timeout = p_ready_timeout, defer_delay = p_defer_delay,
      suspect_after = p_suspect_after, failed_policy = p_failed_policy, events_kept = p_events_kept
  returning s.* into v_server;
  return v_server;
end $$;

-- Stores the uptime of the server, in which timeouts are counted.  It never goes back.
create or replace function exchange.tick(p_epoch bigint, p_now double precision) returns void
language sql volatile set search_path from current as $$
  select exchange._enter(p_epoch);
  update exchange.server s set served_seconds = greatest(s.served_seconds, p_now), seen_at = exchange.now();
  select exchange._alert_restored()
$$;
