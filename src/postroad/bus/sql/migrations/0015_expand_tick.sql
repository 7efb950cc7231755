-- breaks older: no
-- Maintenance counts its runs.
create sequence mbus.tick;
-- Replaced by mbus._swept, and by a function with another parameter.
drop function if exists mbus._is_quiet(mbus.queue, bigint), mbus._browse_claimed(mbus.queue, mbus.consumer, text);
