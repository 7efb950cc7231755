-- A dump reads tables as of its start but each sequence when it reaches it, so in a restored dump the sequences are ahead of the messages
-- and hide some of them.  A database created from a template has the same node name and would issue the same iids.

-- The check made by takes: a restored dump has other oids, and a copy of a template has another database oid.
create or replace function mbus._is_home() returns boolean
language sql stable set search_path from current as $$
  select n.database_oid = d.oid and n.table_oid = 'mbus.node'::regclass
  from mbus.node n cross join pg_database d where n.is_only and d.datname = current_database()
$$;

-- Records the current database as the one of this bus.
create or replace function mbus._stay() returns void
language sql set search_path from current as $$
  update mbus.node n set database_oid = d.oid, table_oid = 'mbus.node'::regclass, system_identifier = s.system_identifier
  from pg_database d cross join pg_control_system() s where d.datname = current_database()
$$;

-- Resets the sequences of a queue so that they hide no message; maintenance raises them again.
-- While a dump runs no slot is truncated, so every message is in one of the newest slots.
create or replace function mbus._reset_hints(p_queue mbus.queue) returns void
language sql set search_path from current as $$
  select setval('mbus.lease_floor', 0);
  select mbus._set_hints(t.ready_table, 0, 0) from mbus._tables(p_queue) t;
  select setval(format('mbus.%I', 'qs$' || p_queue.name || '$head')::regclass,
                greatest(0, mbus._figure(p_queue.name, 'tail') - p_queue.slots + 1)),
         setval(p_queue.swept, 0),
         setval(to_regclass(format('mbus.%I', 'qs$' || p_queue.name || '$settled')), 0);
$$;
