create or replace function mbus._is_group_leased(p_consumer_id integer, p_group text) returns boolean
language sql stable set search_path from current as $$
  select exists (select from mbus.leased l where l.consumer_id = p_consumer_id and l.group_name = p_group
                   and l.token >= (select pg_sequence_last_value('mbus.lease_floor')))
$$;

-- True while a message of the group is leased, or waits for the consumer's next attempt.
create or replace function mbus._is_group_held(p_consumer_id integer, p_group text) returns boolean
language sql stable set search_path from current as $$
  select mbus._is_group_leased(p_consumer_id, p_group)
      or exists (select from mbus.delayed where consumer_id = p_consumer_id and group_name = p_group)
$$;

-- These groups and those that have messages in an older generation.  A take that goes on to the next generation has read the older ones
-- with older snapshots: messages of a group may have been committed to both since.
create or replace function mbus._groups_before(p_queue_id integer, p_consumer_id integer, p_generation bigint, p_groups text[]) returns text[]
language plpgsql volatile set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_table record;
begin
  for v_table in
    select t.ready_table, t.payload_table from mbus.queue q cross join lateral mbus._tables(q) t
    where q.id = p_queue_id and t.consumer_id = p_consumer_id and t.lane = 'normal' and mbus._hint(t.ready_table) < mbus._drained()
      and t.slot in (select g % q.slots from generate_series(mbus._figure(q.name, 'head'), p_generation - 1) g)
  loop
    execute format($query$
      select $1 || array(
        select distinct m.name from mbus.%I r
        cross join lateral (select e.headers -> 'group' as name, e.expires from mbus.%I e where e.id = r.id offset 0) m
        where r.id >= $2 and r.token is null and m.name <> all ($1) and (m.expires is null or m.expires > $3))$query$,
      v_table.ready_table, v_table.payload_table)
    into p_groups using p_groups, mbus._hint(v_table.ready_table), mbus.now();
  end loop;
  return p_groups;
end $$;

-- Takes retries of groups that are due, the oldest first, one per group.
-- Locks: the group's advisory lock, without waiting, then the row.
create or replace function mbus._take_group_retries(p_queue_id integer, p_consumer_id integer, p_amount integer) returns setof mbus.parcel
language plpgsql set search_path from current as $$
declare
  v_ids     bigint[];
  v_expired bigint[];
begin
  -- These retries would block their groups until the next maintenance run.
  with gone as (
    delete from mbus.delayed d where d.id in (
      select w.id from mbus.delayed w
      where w.queue_id = p_queue_id and w.consumer_id = p_consumer_id and w.group_name is not null
        and w.due_at <= (select mbus.now()) and w.expires <= (select mbus.now())
      for update skip locked)
    returning d.number)
  select array_agg(g.number) into v_expired from gone g;
  if v_expired is not null and (select q.has_waiters from mbus.queue q where q.id = p_queue_id) then
    perform mbus._lost(p_queue_id, p_consumer_id, v_expired);
  end if;
  v_ids := array(
    select d.id from mbus.delayed d
    where d.queue_id = p_queue_id and d.consumer_id = p_consumer_id and d.group_name is not null
      and d.due_at <= (select mbus.now())
      and pg_try_advisory_xact_lock(p_consumer_id, hashtext(d.group_name))
    order by d.number limit p_amount);
  return query
  with gone as (
    delete from mbus.delayed d
    where d.id in (
      select w.id from mbus.delayed w
      where w.id = any (v_ids)
        and not mbus._is_group_leased(p_consumer_id, w.group_name)
      for update skip locked)
    returning d.*)
  select g.number, g.added, g.expires, g.headers, g.properties, g.trail, null::integer[],
         g.data_hstore, g.data_jsonb, g.data_text, g.data_bytea
  from gone g where g.expires is null or g.expires > mbus.now() order by g.number;
end $$;
