create or replace view bridge.inlets as
select i.name, i.source, i.queue, (select count(*) from bridge.ledger l where l.inlet_id = i.id) as ledger_rows, i.created_at
from bridge.inlet i;
comment on view bridge.inlets is 'Where messages arrive in this database.';
