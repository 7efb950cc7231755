-- Where process events are posted.
select mbus.create_queue('exchange_events', payload => 'jsonb')
where not exists (select from mbus.queue where name = 'exchange_events');
