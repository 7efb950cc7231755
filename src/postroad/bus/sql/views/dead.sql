create or replace view mbus.dead as
select q.name as queue, c.name as consumer, q.name || '.' || d.number || '@' || n.name as iid, d.error,
       coalesce((d.trail ->> 'attempts')::integer, 0) as attempts, d.trail -> 'history' as history, d.died_at, d.added,
       d.headers, d.properties,
       coalesce(d.data_hstore::text, d.data_jsonb::text, d.data_text, d.data_bytea::text) as data, d.id, d.fingerprint
from mbus.dmq d join mbus.queue q on q.id = d.queue_id join mbus.consumer c on c.id = d.consumer_id
cross join mbus.node n;
comment on view mbus.dead is 'The dead message queue, with the payload as text.';
