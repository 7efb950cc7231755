create or replace view mbus.handling as
select k.queue, k.consumer,
       coalesce(max(k.messages) filter (where k.kind = 'handled'), 0)::bigint as handled,
       coalesce(max(k.messages) filter (where k.kind = 'failed'), 0)::bigint as failed,
       make_interval(secs => max(k.median) filter (where k.kind = 'wait')) as wait_median,
       make_interval(secs => max(k.high) filter (where k.kind = 'wait')) as wait_high,
       make_interval(secs => max(k.median) filter (where k.kind = 'handled')) as handling_median,
       make_interval(secs => max(k.high) filter (where k.kind = 'handled')) as handling_high,
       max(k.mean) filter (where k.kind = 'attempts') as attempts,
       max(k.mean) filter (where k.kind = 'batch') as batch
from (
  select h.queue, h.consumer, h.kind, sum(h.count) as messages, max(h.total) / nullif(sum(h.count), 0) as mean,
         mbus._quantile(h.kind, array_agg(h.count order by h.place), 0.5) as median,
         mbus._quantile(h.kind, array_agg(h.count order by h.place), 0.95) as high
  from (
    select m.queue, m.consumer, m.kind, u.place, sum(u.count)::bigint as count, sum(m.total) as total
    from mbus.measures m cross join lateral unnest(m.counts) with ordinality u(count, place)
    where m.since between mbus.now() - interval '2 hours' and mbus.now()
    group by m.queue, m.consumer, m.kind, u.place) h
  group by h.queue, h.consumer, h.kind) k
group by k.queue, k.consumer;
comment on view mbus.handling is
  'How long messages waited for a worker and were handled in this hour and the last one, as workers have measured it: median and 95 % quantile.';
