create or replace view mbus.workers as
select w.id, q.name as queue, c.name as consumer, w.host, w.pid, w.mode, w.concurrency,
       (select count(*) from jsonb_object_keys(w.held)) as holds, w.started_at, w.seen_at,
       case when w.seen_at > mbus.now() - interval '30 seconds' then 'running' else 'lost' end as state, w.held
from mbus.worker w join mbus.consumer c on c.id = w.consumer_id join mbus.queue q on q.id = c.queue_id;
comment on view mbus.workers is
  'The handlers of running workers: where they run, how many messages each handles at the same time and has leased.';
