-- To be called once after a restore by pg_restore or psql, before anybody takes messages.  A dump reads tables as they were
-- when it began and sequences as they are when it comes to them, so the figures of a bus that was at work are ahead of its
-- messages and would hide some.  Here they are set back to where they hide none; maintenance raises them again.
-- While a dump runs no slot is truncated, so every message lies in one of the newest slots.
create or replace function mbus.after_restore() returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue mbus.queue;
  v_table text;
begin
  for v_queue in select * from mbus.queue order by id loop
    v_queue := mbus._alter(v_queue.id);
    for v_table in select t.ready_table from mbus._tables(v_queue) t loop
      perform setval(format('mbus.%I', v_table || '$hint')::regclass, 0);
    end loop;
    perform setval(format('mbus.%I', 'qs$' || v_queue.name || '$head')::regclass,
                   greatest(0, mbus._figure(v_queue.name, 'tail') - v_queue.slots + 1)),
            setval(v_queue.swept, 0);
  end loop;
end $$;
