-- Like mbus.status: how many messages wait, for how long, and the rate.
create or replace view bridge.status as
select o.name, 'out' as direction, o.queue, o.consumer, o.target as other_end, o.state,
       s.depth as lag, s.oldest_age as lag_age,
       coalesce(r.sent, 0)::double precision / 10 as per_second,
       coalesce(t.messages, 0) as carried, coalesce(t.looped, 0) as dropped, s.dmq as refused, t.last_at,
       o.problem, o.problem_at, bridge._is_held(o.name) as is_run
from bridge.outlet o
left join mbus.status s on s.queue = o.queue and s.consumer = o.consumer
cross join lateral (
  select sum(b.messages) as sent from bridge.sent b where b.outlet_id = o.id and b.sent_at > bridge.now() - interval '10 s') r
cross join lateral (
  select sum(b.messages) as messages, sum(b.looped) as looped, max(b.sent_at) as last_at
  from bridge.sent b where b.outlet_id = o.id) t
union all
select i.name, 'in', i.queue, null, i.source, i.state,
       w.waiting, null,
       coalesce(r.posted, 0)::double precision / 10,
       coalesce(t.posted, 0), coalesce(t.dropped, 0), f.refused, t.last_at,
       i.problem, i.problem_at, bridge._is_held('in ' || i.name)
from bridge.inlet i
cross join lateral (
  select max(a.waiting) as waiting from (
    select b.waiting from bridge.arrived b where b.inlet_id = i.id and b.waiting is not null order by b.id desc limit 1) a) w
cross join lateral (
  select sum(a.posted) as posted from bridge.arrived a where a.inlet_id = i.id and a.arrived_at > bridge.now() - interval '10 s') r
cross join lateral (
  select sum(a.posted) as posted, sum(a.dropped) as dropped, max(a.arrived_at) filter (where a.waiting is null) as last_at
  from bridge.arrived a where a.inlet_id = i.id) t
cross join lateral (select count(*) as refused from bridge.refused x where x.inlet_id = i.id) f
where i.source like 'rabbitmq:%';
comment on view bridge.status is 'Lag and rate of every bridge that leaves from this database, and of those that arrive from a broker; carried and dropped count the last hour.';
