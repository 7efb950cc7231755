-- breaks older: no
-- Replaced by a function with fewer arguments; queues get batch_<q>_by_<c> and leasen_<q>_by_<c> from their templates.
drop function if exists mbus._generate_take(mbus.queue, mbus.consumer, jsonb, text, text, text, boolean);
