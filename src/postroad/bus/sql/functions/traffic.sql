-- Counts of messages since a time, per p_step, for one consumer, a queue or all queues.  A post counts once per queue; waiting and dead are
-- null where they were not recorded.  A consumer's counts are up to two minutes old.  Read-only.
create or replace function mbus.traffic(
  p_since timestamptz, p_step interval, p_queue text default null, p_consumer text default null)
returns table (at timestamptz, posted bigint, consumed bigint, rejected bigint, died bigint, expired bigint, waiting bigint, dead bigint)
language sql stable security definer set search_path from current as $$
  select z.at, sum(z.posted)::bigint, sum(z.consumed)::bigint, sum(z.rejected)::bigint, sum(z.died)::bigint, sum(z.expired)::bigint,
         sum(z.waiting)::bigint, sum(z.dead)::bigint
  from (
    select y.at, y.queue_id, max(y.posted) as posted, sum(y.consumed) as consumed, sum(y.rejected) as rejected, sum(y.died) as died,
           sum(y.expired) as expired, sum(y.waiting) as waiting, sum(y.dead) as dead
    from (
      select date_bin(p_step, t.since, 'epoch') as at, c.queue_id, c.id, sum(t.posted) as posted, sum(t.consumed) as consumed,
             sum(t.rejected) as rejected, sum(t.died) as died, sum(t.expired) as expired, max(t.waiting) as waiting, max(t.dead) as dead
      from mbus.traffic t join mbus.consumer c on c.id = t.consumer_id join mbus.queue q on q.id = c.queue_id
      where t.since >= p_since and (p_queue is null or q.name = p_queue) and (p_consumer is null or c.name = p_consumer)
      group by 1, 2, 3) y
    group by 1, 2) z
  group by 1 order by 1
$$;
