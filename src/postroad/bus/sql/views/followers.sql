create or replace view mbus.followers as
select q.name as queue, case when f.destination_id is null then 'temporary' else 'trigger' end as kind,
       coalesce(d.name, f.temporary_name) as destination, f.selector, t.pid, f.created_at
from mbus.follower f join mbus.queue q on q.id = f.queue_id
left join mbus.queue d on d.id = f.destination_id
left join mbus.temporary_queue t on t.name = f.temporary_name;
comment on view mbus.followers is 'Recipients of copies of posted messages: triggers and temporary consumers.';
