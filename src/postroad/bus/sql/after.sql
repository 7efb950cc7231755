-- Creates the functions of existing queues from the templates just installed.
select mbus._generate(q) from mbus.queue q;
-- Replaced by mbus._set_aside.  Dropped last, because the view that called it keeps its grants when it is replaced.
drop function if exists mbus._waiting(mbus.queue, mbus.consumer);
