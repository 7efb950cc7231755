-- breaks older: no
alter table mbus.consumer add column if not exists contract text not null default 'message'
  constraint contract_is_known check (contract in ('message', 'cursor'));
-- the rest runs with the upgrade
-- Replaced by functions with one more argument, which the same calls reach.
drop function if exists mbus.create_consumer(text, text, text, boolean, text), mbus._holders(regclass),
  mbus._tables_in_order(mbus.queue, text);
