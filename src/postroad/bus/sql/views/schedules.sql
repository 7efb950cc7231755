create or replace view mbus.schedules as
select s.name as schedule, s.timing, s.timezone, q.name as queue, s.missed,
       case when s.paused_at is null then 'active' else 'paused' end as state, s.next_at,
       r.ran_at as last_at, r.outcome as last_outcome, r.iid as last_iid, r.error as last_error,
       s.paused_at, s.paused_by, s.pause_reason, s.data, s.headers, s.properties, s.created_at
from mbus.schedule s join mbus.queue q on q.id = s.queue_id
left join lateral (
  select h.* from mbus.schedule_run h where h.schedule = s.name order by h.id desc limit 1) r on true;
comment on view mbus.schedules is 'Every schedule, when it runs next, and its last run; see mbus.schedule_run for earlier ones.';
