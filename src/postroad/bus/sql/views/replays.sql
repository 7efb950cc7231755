create or replace view mbus.replays as
select r.id, q.name as queue, c.name as consumer,
       case when r.error is not null then 'stopped' when r.finished_at is not null then 'finished'
            when r.bound is null then 'waiting' else 'running' end as state,
       r.is_start, nullif(r.since, '-infinity') as since, r.until, r.selector, r.rate, r.messages,
       case when r.place >= r.bound then 1 when r.place = 0 or r.bound is null then 0
            else greatest(0, (r.place - r.first_id)::double precision / (r.bound - r.first_id)) end as progress,
       r.started_at, r.started_by, r.finished_at, r.error
from mbus.replay r join mbus.queue q on q.id = r.queue_id join mbus.consumer c on c.id = r.consumer_id;
comment on view mbus.replays is 'Every replay and how far it is; those of consumers that begin in the past, too.';
