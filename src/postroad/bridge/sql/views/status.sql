-- In the family of mbus.status: what waits, for how long, and how fast it goes.
create or replace view bridge.status as
select o.name, o.queue, o.consumer, o.target, o.state,
       s.depth as lag, s.oldest_age as lag_age, s.posted_per_second,
       coalesce(r.sent, 0)::double precision / 10 as sent_per_second,
       coalesce(t.messages, 0) as sent, coalesce(t.looped, 0) as looped, s.dmq as refused, t.last_at as last_sent_at,
       o.problem, o.problem_at
from bridge.outlet o
left join mbus.status s on s.queue = o.queue and s.consumer = o.consumer
cross join lateral (
  select sum(b.messages) as sent from bridge.sent b where b.outlet_id = o.id and b.sent_at > bridge.now() - interval '10 s') r
cross join lateral (
  select sum(b.messages) as messages, sum(b.looped) as looped, max(b.sent_at) as last_at
  from bridge.sent b where b.outlet_id = o.id) t;
comment on view bridge.status is 'Lag and rate of every bridge that leaves from this database; sent and looped count the last hour.';
