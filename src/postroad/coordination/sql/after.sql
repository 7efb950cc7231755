-- The functions of tracked entities are made from the templates just installed; replicas make theirs with the next page.
update coordination.entity set applied = null where role = 'replica';
select coordination._order_entities();
select coordination.track(format('%I.%I', e.schema_name, e.table_name), e.name, e.mode, e.on_conflict)
from coordination.entity e where e.role = 'tracked' and to_regclass(format('%I.%I', e.schema_name, e.table_name)) is not null;
