create or replace view mbus.consumers as
select q.name as queue, c.name as consumer, c.selector, c.max_attempts, c.backoff, c.backoff_max, c.created_at
from mbus.consumer c join mbus.queue q on q.id = c.queue_id;
comment on view mbus.consumers is 'Every durable subscriber and its settings.';
