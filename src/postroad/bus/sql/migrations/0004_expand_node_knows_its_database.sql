-- breaks older: no
alter table mbus.node add column database_oid oid, add column table_oid oid, add column system_identifier bigint;
update mbus.node n set database_oid = d.oid, table_oid = 'mbus.node'::regclass, system_identifier = s.system_identifier
from pg_database d cross join pg_control_system() s where d.datname = current_database();
-- Replaced by a function with a parameter.
drop function if exists mbus.after_restore();
