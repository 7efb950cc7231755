create or replace view mbus.measures as
select q.name as queue, c.name as consumer, m.kind, m.since, mbus._bounds(m.kind) as bounds, m.counts, m.total
from mbus.measure m join mbus.consumer c on c.id = m.consumer_id join mbus.queue q on q.id = c.queue_id;
comment on view mbus.measures is 'Histograms that workers have measured, per consumer: in total (since -infinity) and per hour of the last week.';
