-- Keeps the ledger short without removing messages that may arrive again.

-- At the target: returns batches of an inlet whose commit at the source is not recorded here.
create or replace function bridge.open_batches(p_inlet text, p_source text) returns bigint[]
language sql stable security definer set search_path from current as $$
  select coalesce(array_agg(distinct l.batch), '{}') from bridge.ledger l
  where l.inlet_id = (bridge._inlet(p_inlet, p_source)).id and l.batch is not null and not l.is_pinned
$$;

-- At the source: returns which of these batches were committed.  Called when no transaction of the bridge is left open.
create or replace function bridge.committed(p_outlet text, p_batches bigint[]) returns bigint[]
language sql stable security definer set search_path from current as $$
  select coalesce(array_agg(s.batch), '{}') from bridge.sent s
  where s.outlet_id = (bridge._outlet(p_outlet)).id and s.batch = any (p_batches)
$$;

-- At the target: records that the source has committed p_committed, and has rolled back p_lost, which will be sent again.
-- Merges confirmed rows and deletes those older than p_keep.  Returns how many rows the inlet's ledger has.
create or replace function bridge.settle(
  p_inlet text, p_source text, p_committed bigint[], p_lost bigint[], p_keep interval default '1 day')
returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_inlet constant bridge.inlet := bridge._inlet(p_inlet, p_source);
  v_number bigint;
begin
  update bridge.ledger l set is_pinned = true where l.inlet_id = v_inlet.id and l.batch = any (p_lost);
  -- Committed rows, and confirmed ones of an hour that has many, become one row per hour, so that old parts can be deleted.  A row with
  -- many ranges stays as it is, because rows are always read as a whole.
  with crowded as (
    select l.origin_id, date_trunc('hour', l.seen_at) as hour from bridge.ledger l
    where l.inlet_id = v_inlet.id and l.batch is null and (select count(*) from unnest(l.numbers)) < 1000
    group by 1, 2 having count(*) > 20),
  gone as (
    delete from bridge.ledger l where l.inlet_id = v_inlet.id and (l.batch = any (p_committed) and not l.is_pinned
      or l.batch is null and (select count(*) from unnest(l.numbers)) < 1000
        and (l.origin_id, date_trunc('hour', l.seen_at)) in (select c.origin_id, c.hour from crowded c))
    returning l.*),
  merged as (
    select g.origin_id, range_agg(r) as numbers, max(g.seen_at) as seen_at
    from gone g cross join unnest(g.numbers) r group by g.origin_id, date_trunc('hour', g.seen_at))
  insert into bridge.ledger (origin_id, first, last, numbers, inlet_id, seen_at)
  select m.origin_id, lower(m.numbers), upper(m.numbers) - 1, m.numbers, v_inlet.id, m.seen_at from merged m;
  delete from bridge.ledger l where l.batch is null and l.seen_at < bridge.now() - p_keep;
  -- Once per p_keep the older table of foreign ids is emptied, and becomes the younger one.
  if extract(epoch from bridge.now() - p_keep) >= pg_sequence_last_value('bridge.turned_at')
     and pg_try_advisory_xact_lock(bridge._lock_class(), 0) then
    v_number := pg_sequence_last_value('bridge.turns');
    if v_number % 2 = 0 then truncate bridge.foreign_1; else truncate bridge.foreign_0; end if;
    -- Not nextval, whose number a promoted standby has 32 ahead, or any number less.
    perform setval('bridge.turns', v_number + 1), setval('bridge.turned_at', extract(epoch from bridge.now())::bigint);
  end if;
  return (select count(*) from bridge.ledger l where l.inlet_id = v_inlet.id);
end $$;

-- At the source: deletes batches that were sent long ago and that the target has confirmed.
create or replace function bridge.forget(p_outlet text, p_settled bigint, p_keep interval default '1 hour') returns bigint
language sql security definer set search_path from current as $$
  with gone as (
    delete from bridge.sent s where s.outlet_id = (bridge._outlet(p_outlet)).id and s.batch <= p_settled
      and s.sent_at < bridge.now() - p_keep returning 1)
  select count(*) from gone
$$;
