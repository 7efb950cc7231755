create or replace view mbus.queues as
select q.name as queue, q.payload, q.slots as ncons,
       (select array_agg(c.name order by c.id) from mbus.consumer c where c.queue_id = q.id) as consumers,
       q.mode, q.lanes, q.has_groups,
       (select count(*) from unnest(array(select generate_series(0, q.slots - 1))) s where mbus._slot_exists(q, s)) as segments,
       q.is_roles_security_model, q.created_at, q.retain, q.retain_size, r.retained, r.retained_bytes, r.retained_since, q.track, q.schema
from mbus.queue q
cross join lateral (
  select coalesce(sum(s.messages), 0)::bigint as retained, coalesce(sum(s.bytes), 0)::bigint as retained_bytes, min(s.first_at) as retained_since
  from mbus.retained s where s.queue_id = q.id) r;
comment on view mbus.queues is 'Every queue and its shape.';
