-- The number of leased messages of each consumer that has any.  They are counted for all consumers together, from the lowest live token on,
-- because an index by consumer would have to be written for each lease.
create or replace function mbus._leased() returns table (consumer_id integer, leased bigint)
language sql stable security definer set search_path from current set enable_seqscan = off set jit = off as $$
  select l.consumer_id, count(*) from mbus.leased l
  where l.token >= (select case when mbus._is_home() then pg_sequence_last_value('mbus.lease_floor') else 0 end) group by l.consumer_id
$$;

-- Leased messages of a consumer on the ring, up to 10,000 per table, searched among the first 10,000 other messages.
create or replace function mbus._claimed(p_queue mbus.queue, p_consumer mbus.consumer) returns bigint
language plpgsql volatile security definer set search_path from current set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_table text;
  v_rows  bigint;
  v_count bigint := 0;
begin
  for v_table in select t.ready_table from mbus._claim_tables(p_queue, p_consumer.id) t loop
    execute format('select count(*) from (select from mbus.%I r where %s limit 10000) w', v_table, mbus._claimed_condition(v_table, 9999))
    into v_rows;
    v_count := v_count + v_rows;
  end loop;
  return v_count;
exception when internal_error or undefined_table then
  return 0;    -- The queue was dropped in the meantime.
end $$;

-- Delayed, blocked and dead messages of a consumer, counted up to 10,000.
create or replace function mbus._set_aside(
  p_queue mbus.queue, p_consumer mbus.consumer,
  out delayed bigint, out blocked bigint, out dmq bigint, out is_estimate boolean)
language plpgsql stable security definer set search_path from current as $$
begin
  select count(*) into delayed from (
    select from mbus.delayed d where d.queue_id = p_queue.id and mbus._is_for(p_consumer.id, d.consumer_id, d.recipients) limit 10000) w;
  select count(*) into blocked from (
    select from mbus.blocked b
    where b.queue_id = p_queue.id and b.released_by is null and mbus._is_for(p_consumer.id, null, b.recipients) limit 10000) w;
  select count(*) into dmq from (select from mbus.dmq d where d.consumer_id = p_consumer.id limit 10000) w;
  is_estimate := greatest(delayed, blocked, dmq) = 10000;
end $$;

-- Messages per second: for posts, between the last two samples of a consumer, which are about ten seconds apart; for the others, over the
-- last 15 seconds.  Null if there is no sample.
create or replace function mbus._rates(
  p_consumer mbus.consumer, out posted_per_second double precision, out consumed_per_second double precision,
  out died_per_second double precision, out expired_per_second double precision, out rejected_per_second double precision)
language sql stable security definer set search_path from current as $$
  select p.posted, coalesce(sum(t.messages) filter (where t.kind = 'consumed'), 0) / 15,
         coalesce(sum(t.messages) filter (where t.kind = 'died'), 0) / 15,
         coalesce(sum(t.messages) filter (where t.kind = 'expired'), 0) / 15,
         coalesce(sum(t.messages) filter (where t.kind = 'rejected'), 0) / 15
  from (select mbus.now() as now offset 0) c
  left join mbus.tally t on t.consumer_id = p_consumer.id and t.at > c.now - interval '15 seconds'
  left join lateral (
    -- An idle queue is not sampled: nothing has been posted since the last sample.
    select case when b.taken_at < c.now - interval '30 seconds' then 0
                else greatest(b.posted - a.posted, 0) / extract(epoch from b.taken_at - a.taken_at)::double precision
           end as posted
    from (select * from mbus.sample where consumer_id = p_consumer.id order by taken_at desc limit 1) b
    cross join lateral (
      select * from mbus.sample where consumer_id = p_consumer.id and taken_at < b.taken_at order by taken_at desc limit 1) a
  ) p on true
  group by p.posted
$$;
