create or replace view mbus.consumers as
select q.name as queue, c.name as consumer, c.selector, c.max_attempts, c.backoff, c.backoff_max, c.created_at,
       p.paused_at, p.paused_by, p.reason as pause_reason, p.paused_at is not null and p.consumer_id is null as is_queue_paused,
       c.contract, l.rate, l.burst, l.concurrency, l.key, l.key_rate, l.key_concurrency,
       case when l.consumer_id is not null then mbus._limited_by(c.id) end as limited_by
from mbus.consumer c join mbus.queue q on q.id = c.queue_id
left join mbus.consumer_limit l on l.consumer_id = c.id
left join lateral (
  select w.* from mbus.pause w where w.queue_id = q.id and coalesce(w.consumer_id, c.id) = c.id
  order by w.consumer_id nulls first limit 1) p on true;
comment on view mbus.consumers is 'Every durable subscriber, its settings and limits, and who has paused it or its queue.';
