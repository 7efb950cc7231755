-- breaks older: no
-- Limits use the first 100 characters of a key; after.sql creates these indexes again.
do $$
declare
  v_indexes constant text := (
    select string_agg(c.oid::regclass::text, ', ') from pg_class c
    where c.relnamespace = 'mbus'::regnamespace and c.relkind = 'i' and c.relname like 'key$%');
begin
  if v_indexes is not null then execute 'drop index ' || v_indexes; end if;
end $$;
