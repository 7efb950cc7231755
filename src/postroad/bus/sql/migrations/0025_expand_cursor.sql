-- breaks older: no
alter table mbus.consumer add column contract text not null default 'message'
  constraint contract_is_known check (contract in ('message', 'cursor'));
-- Replaced by functions with one more argument, which the same calls reach.
drop function if exists mbus.create_consumer(text, text, text, boolean, text), mbus._holders(regclass),
  mbus._tables_in_order(mbus.queue, text);
