-- breaks older: no
alter table mbus.sample drop column ready;
-- creates: tables/tally.sql
-- Replaced by functions with another signature.
drop function if exists mbus.purge(text, text, text, integer);
-- The view is emptied and not dropped: views of other schemas and of users are built on it.
do $$
begin
  execute (
    select 'create or replace view mbus.status as select '
      || string_agg(format('null::%s as %I', format_type(a.atttypid, a.atttypmod), a.attname), ', ' order by a.attnum)
    from pg_attribute a where a.attrelid = 'mbus.status'::regclass and a.attnum > 0);
end $$;
drop function if exists mbus._rates(mbus.consumer);
