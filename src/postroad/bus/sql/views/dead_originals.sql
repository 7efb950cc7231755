create or replace view mbus.dead_originals as
select o.id, q.name as queue, c.name as consumer, q.name || '.' || o.number || '@' || n.name as iid, o.edited_at, o.edited_by,
       o.died_at, o.error, o.properties, o.data
from mbus.dead_original o join mbus.queue q on q.id = o.queue_id join mbus.consumer c on c.id = o.consumer_id
cross join mbus.node n;
comment on view mbus.dead_originals is 'Dead messages as they were before they were edited and redriven.';
