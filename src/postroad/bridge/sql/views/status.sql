-- Like mbus.status: how many messages wait, for how long, and the rate.
create or replace view bridge.status as
select o.name, 'out' as direction, o.queue, o.consumer, o.target as other_end, o.state,
       s.depth as lag, s.oldest_age as lag_age,
       coalesce(t.recent, 0)::double precision / 10 as per_second,
       coalesce(t.messages, 0) as carried, coalesce(t.looped, 0) as dropped, s.dmq as refused, t.last_at,
       o.problem, o.problem_at, bridge._is_held(o.name) as is_run
from bridge.outlet o
left join mbus.status s on s.queue = o.queue and s.consumer = o.consumer
cross join lateral (
  select sum(b.messages) as messages, sum(b.messages) filter (where b.sent_at > bridge.now() - interval '10 s') as recent,
    sum(b.looped) as looped, max(b.sent_at) as last_at
  from bridge.sent b where b.outlet_id = o.id) t
union all
select i.name, 'in', i.queue, null, i.source, i.state,
       (select a.waiting from bridge.arrived a where a.inlet_id = i.id and a.waiting is not null order by a.id desc limit 1), null,
       coalesce(t.recent, 0)::double precision / 10,
       coalesce(t.posted, 0), coalesce(t.dropped, 0), (select count(*) from bridge.refused x where x.inlet_id = i.id), t.last_at,
       i.problem, i.problem_at, bridge._is_held('in ' || i.name)
from bridge.inlet i
cross join lateral (
  select sum(a.posted) as posted, sum(a.posted) filter (where a.arrived_at > bridge.now() - interval '10 s') as recent,
    sum(a.dropped) as dropped, max(a.arrived_at) filter (where a.waiting is null) as last_at
  from bridge.arrived a where a.inlet_id = i.id) t
where i.source like 'rabbitmq:%';
comment on view bridge.status is 'Lag and rate of every bridge that leaves from this database, and of those that arrive from a broker; carried and dropped count the last hour.';
