-- Delayed, blocked, leased and dead messages of a consumer, counted up to 10,000.
create or replace function mbus._waiting(
  p_queue mbus.queue, p_consumer mbus.consumer,
  out delayed bigint, out blocked bigint, out leased bigint, out dmq bigint, out is_estimate boolean)
language plpgsql stable security definer set search_path from current as $$
begin
  select count(*) into delayed from (
    select from mbus.delayed d
    where d.queue_id = p_queue.id
      and (d.consumer_id = p_consumer.id
           or d.consumer_id is null and (d.recipients is null or p_consumer.id = any (d.recipients)))
    limit 10000) w;
  select count(*) into blocked from (
    select from mbus.blocked b
    where b.queue_id = p_queue.id and b.released_by is null and mbus._is_for(p_consumer.id, null, b.recipients)
    limit 10000) w;
  select count(*) into leased from (
    select from mbus.leased l where l.queue_id = p_queue.id and l.consumer_id = p_consumer.id limit 10000) w;
  select count(*) into dmq from (select from mbus.dmq d where d.consumer_id = p_consumer.id limit 10000) w;
  is_estimate := greatest(delayed, blocked, leased, dmq) = 10000;
end $$;

-- Messages per second between the last two samples of a consumer, which are about ten seconds apart.
create or replace function mbus._rates(
  p_consumer mbus.consumer, out posted_per_second double precision, out consumed_per_second double precision)
language sql stable security definer set search_path from current as $$
  select greatest(b.posted - a.posted, 0) / s.seconds,
         greatest(b.posted - b.ready - a.posted + a.ready, 0) / s.seconds
  from (select * from mbus.sample where consumer_id = p_consumer.id order by taken_at desc limit 1) b
  cross join lateral (
    select * from mbus.sample where consumer_id = p_consumer.id and taken_at < b.taken_at order by taken_at desc limit 1) a
  cross join lateral (select extract(epoch from b.taken_at - a.taken_at)::double precision as seconds) s
$$;
