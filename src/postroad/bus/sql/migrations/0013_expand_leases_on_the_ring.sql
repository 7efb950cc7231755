-- breaks older: no
-- Leased messages stay on the ring.  Those that are leased now are in mbus.leased until they are answered.
alter table mbus.leased alter column token set default nextval('mbus.lease_token') * 262144 + 1023;
do $$
declare
  v_table text;
begin
  for v_table in
    select c.relname from pg_class c
    where c.relnamespace = 'mbus'::regnamespace and c.relkind = 'r' and c.relname ~ '^q[tc]\$' order by 1
  loop
    execute format('alter table mbus.%I add column token bigint, add column leased_until timestamptz, set (fillfactor = %s)',
                   v_table, case when v_table like 'qc$%' then 35 else 50 end);
    execute format('create sequence mbus.%I minvalue 0 start 0', v_table || '$base');
    perform setval(format('mbus.%I', v_table || '$base')::regclass,
                   pg_sequence_last_value(format('mbus.%I', v_table || '$hint')::regclass));
  end loop;
end $$;
-- Replaced by functions with other parameters.
drop function if exists mbus._held(text, bigint), mbus._take_number_query(mbus.queue, text, text);
drop function if exists mbus._generate_take(mbus.queue, mbus.consumer, jsonb, text, text, text);
