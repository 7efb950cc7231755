-- Regenerates the functions and views of tracked entities from the templates just installed; those of replicas are generated with the
-- next page.
update coordination.entity set applied = null where role = 'replica';
select coordination._order_entities();
select case e.role
  when 'tracked' then coordination.track(format('%I.%I', e.schema_name, e.table_name), e.name, e.mode, e.on_conflict)
  else coordination._show_images(e)::text end
from coordination.entity e where to_regclass(format('%I.%I', e.schema_name, e.table_name)) is not null;
