-- The functions of queues are granted to these roles.
select mbus._create_role(mbus._role(suffix), false) from unnest('{caller,admin,user}'::text[]) suffix;
-- Regenerates the functions of existing queues from the templates just installed, and rebuilds their views and missing indexes.
select mbus._generate(q), mbus._rebuild_views(q), mbus._index_keys(q) from mbus.queue q;
-- Messages that died before the column existed.
update mbus.dmq set fingerprint = mbus._fingerprint(error) where fingerprint is null;
