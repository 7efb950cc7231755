create or replace view mbus.status as
select q.name as queue, c.name as consumer,
       r.ready + w.delayed + w.blocked + h.leased as depth, r.ready, w.delayed, h.leased, w.dmq,
       mbus.now() - r.oldest as oldest_age, p.posted_per_second, p.consumed_per_second,
       r.is_estimate or w.is_estimate or h.leased >= 10000 as is_estimate, w.blocked,
       p.died_per_second, p.expired_per_second, p.rejected_per_second
from mbus.queue q
join mbus.consumer c on c.queue_id = q.id
cross join lateral mbus._ready(q, c) r
cross join lateral mbus._set_aside(q, c) w
left join mbus._leased() l on l.consumer_id = c.id
cross join lateral (select coalesce(l.leased, 0) + mbus._claimed(q, c) as leased offset 0) h
cross join lateral mbus._rates(c) p;
comment on view mbus.status is
  'Depth, age and rates per queue and consumer.  Counts are exact up to 10,000.  Beyond that ready is an estimate, and the others stay at 10,000.';
-- Called by a former version of this view, which keeps its grants when it is replaced.
drop function if exists mbus._waiting(mbus.queue, mbus.consumer);
