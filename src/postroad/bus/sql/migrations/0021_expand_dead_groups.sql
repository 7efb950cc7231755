-- breaks older: no
-- after.sql fills the column.
alter table mbus.dmq add column fingerprint text;
create index dmq_by_fingerprint_idx on mbus.dmq (consumer_id, fingerprint, id) include (died_at);
-- creates: tables/dead_original.sql
