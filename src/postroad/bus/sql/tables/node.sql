-- One row: the name of this bus among all that exchange messages.  It is the tail of every iid, so
-- that an iid is unique beyond this database.
create table mbus.node (
  is_only boolean primary key default true constraint there_is_one_node check (is_only),
  name    text not null constraint node_name_is_short check (name ~ '^[a-z0-9]{1,12}$'),
  -- The key that signs the markers of maintenance in its session, because the session's user could change them.
  secret  text not null default gen_random_uuid()::text,
  -- The database of this bus; it differs from the current one in a restored dump or a copy, see mbus.is_restored.
  database_oid      oid,
  table_oid         oid,
  system_identifier bigint
);
insert into mbus.node (name, database_oid, table_oid, system_identifier)
select substr(replace(gen_random_uuid()::text, '-', ''), 1, 6), d.oid, 'mbus.node'::regclass, s.system_identifier
from pg_database d cross join pg_control_system() s where d.datname = current_database();
