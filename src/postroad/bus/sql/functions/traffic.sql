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

-- How long messages waited and were handled since a time, per p_step: of one consumer, of a queue or of all, as workers have measured it in
-- each hour.  Median and 95 % quantile in seconds; null where nothing was measured.  Read-only.
create or replace function mbus.latency(
  p_since timestamptz, p_step interval, p_queue text default null, p_consumer text default null)
returns table (at timestamptz, wait_median double precision, wait_high double precision, handling_median double precision,
               handling_high double precision)
language sql stable security definer set search_path from current as $$
  select h.at, max(mbus._quantile(h.kind, h.counts, 0.5)) filter (where h.kind = 'wait'),
         max(mbus._quantile(h.kind, h.counts, 0.95)) filter (where h.kind = 'wait'),
         max(mbus._quantile(h.kind, h.counts, 0.5)) filter (where h.kind = 'handled'),
         max(mbus._quantile(h.kind, h.counts, 0.95)) filter (where h.kind = 'handled')
  from (
    select z.at, z.kind, array_agg(z.count order by z.place) as counts
    from (
      select date_bin(p_step, m.since, 'epoch') as at, m.kind, u.place, sum(u.count)::bigint as count
      from mbus.measures m cross join lateral unnest(m.counts) with ordinality u(count, place)
      where m.since >= p_since and m.kind in ('wait', 'handled') and (p_queue is null or m.queue = p_queue)
        and (p_consumer is null or m.consumer = p_consumer)
      group by 1, 2, 3) z
    group by 1, 2) h
  group by 1 order by 1
$$;
