-- breaks older: no
-- after.sql fills the column.
alter table mbus.dmq add column if not exists fingerprint text;
create index if not exists dmq_by_fingerprint_idx on mbus.dmq (consumer_id, fingerprint, id) include (died_at);
-- the rest runs with the upgrade
-- creates: tables/dead_original.sql
