-- Creates the functions that apply an entity's payloads, for the columns that both sides have.
-- Raises PC001 for an entity that is not kept here, PC012 for a column that is missing here.
create or replace function coordination._ensure_replica(p_name text, p_columns text[]) returns coordination.entity
language plpgsql set search_path from current as $$
declare
  v_entity  coordination.entity := coordination._entity(p_name);
  v_table   regclass;
  v_shared  text[];
  v_missing text;
  v_values  jsonb;
begin
  -- Usually nothing has changed, which takes one comparison to check.
  if v_entity.applied = p_columns then return v_entity; end if;
  perform coordination._refuse_if(v_entity.role <> 'replica', 'PC001', format('entity %s is not kept here', p_name),
    'register it with coordination.replicate');
  v_table := coordination._table(v_entity);
  v_shared := array(select c from unnest(v_entity.columns) c where c = any (p_columns));
  select c into v_missing from unnest(p_columns) c where c <> all (v_entity.columns) limit 1;
  perform coordination._refuse_if(v_missing is not null and not v_entity.is_subset,
    'PC012', format('column %s of entity %s is missing in table %s', v_missing, p_name, v_table), 'add the column and call coordination.replicate again, or register the replica as a subset');
  perform coordination._refuse_if(not v_entity.key_columns <@ v_shared,
    'PC012', format('entity %s comes without the key of table %s', p_name, v_table), 'Writer and Reader must have the same primary key');
  v_values := jsonb_build_object(
    'table', v_table, 'entity', quote_literal(p_name),
    'erase', quote_ident('erase_' || p_name), 'write', quote_ident('write_' || p_name),
    'keys', coordination._list(v_entity.key_columns),
    'record_keys', coordination._list(v_entity.key_columns, 'r.%I'),
    'key_definitions', coordination._definitions(v_table, v_entity.key_columns),
    'same_key', coordination._list(v_entity.key_columns, 't.%1$I = g.%1$I', ' and '),
    'columns', coordination._list(v_shared),
    'definitions', coordination._definitions(v_table, v_shared),
    'values', coordination._values(v_table, 'g', v_shared),
    'action', coordination._on_conflict(v_shared, v_entity.key_columns));
  execute coordination._fill('erase', v_values);
  execute coordination._fill('write', v_values);
  execute format('revoke execute on function coordination.%I(coordination.page, bigint[]), coordination.%I(coordination.page, bigint[]) from public',
    'erase_' || p_name, 'write_' || p_name);
  update coordination.entity e set applied = p_columns where e.name = p_name returning * into v_entity;
  return v_entity;
end $$;
