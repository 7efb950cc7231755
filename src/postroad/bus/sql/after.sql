-- Regenerates the functions of existing queues from the templates just installed, and rebuilds their views and missing indexes.
select mbus._generate(q), mbus._rebuild_views(q), mbus._index_keys(q) from mbus.queue q;
-- Replaced by mbus._set_aside.  Dropped last, because the view that called it keeps its grants when it is replaced.
drop function if exists mbus._waiting(mbus.queue, mbus.consumer);
-- Messages that died before the column existed.
update mbus.dmq set fingerprint = mbus._fingerprint(error) where fingerprint is null;
