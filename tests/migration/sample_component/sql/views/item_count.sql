create or replace view sample.item_count as select count(*) as items from sample.item;
