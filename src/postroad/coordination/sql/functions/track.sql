-- Captures every change of the table by any program as an event, in the transaction that makes the change.
-- Called again after the table was altered, or to change the mode or the policy; null keeps them (replicate and refuse at first).
-- Rows that Readers do not have are sent as an event of this transaction: those of a table that was not tracked, and those that have
-- values in columns that were added since.  p_with_rows false omits them, for Readers that have yet to take their first snapshot.
-- Locks the table against writers until the end of the transaction.  Raises PC001 for an unknown table, PC003, PC004, PC006, PC007, PC010.
create or replace function coordination.track(
  p_table text, p_entity text default null, p_mode text default null, p_on_conflict text default null,
  p_with_rows boolean default true)
returns text
language plpgsql security definer set search_path from current as $$
declare
  v_table    regclass := coordination._find_table(p_table);
  v_entity   coordination.entity;
  v_name     text;
  v_known    text[];
  v_added    text[];
  v_rows     text;
  v_found    boolean;
  v_function text;
  v_operation text;
  v_packs    jsonb;
  -- A changed key leaves unpaired rows on both sides: one row was removed, another was added.
  v_update constant text := 'select * from (select case when n.{first_key} is null then {delete} when o.{first_key} is null then {insert} else {update} end as type_id, '
    'case when n.{first_key} is null then {old_key} else {new_image} end as after, {old_image} as before from %s full join %s on {same_key} offset 0) c '
    'where c.type_id <> {update} or c.after::text <> c.before::text';
  -- The row with the new key may have kept a unique value of the removed row.
  v_deletes_first constant text := 'order by case c.type_id when {delete} then 1 when {update} then 2 else 3 end';
begin
  perform coordination._require('writer');
  perform coordination._refuse_if(p_mode not in ('replicate', 'two-phase') or p_on_conflict not in ('refuse', 'compensate'),
    'PC002', format('unknown mode %s or policy %s', p_mode, p_on_conflict), 'modes: replicate, two-phase; policies: refuse, compensate');
  perform coordination._lock(0);
  v_name := coalesce(p_entity, (select c.relname from pg_class c where c.oid = v_table));
  select e.columns into v_known from coordination.entity e where e.name = v_name and e.role = 'tracked';
  v_entity := coordination._register(v_table, v_name, 'tracked');
  update coordination.entity e set mode = coalesce(p_mode, e.mode), on_conflict = coalesce(p_on_conflict, e.on_conflict)
  where e.name = v_name returning * into v_entity;
  v_function := quote_ident('capture_' || v_name);
  -- The rows that each operation writes: a query of type_id, after and before.
  select jsonb_object_agg(s.name, coordination._fill('pack', jsonb_build_object('rows', s.rows, 'source', s.source, 'order', s.places))) into v_packs
  from (values
    ('inserted', 'new_rows', 'select {insert} as type_id, {new_image} as after, null::json as before from new_rows n', ''),
    ('inserted_again', 'new_rows', 'select {insert} as type_id, {new_image} as after, null::json as before '
      'from {table} n where exists (select from new_rows o where {same_key})', ''),
    ('deleted', 'old_rows', 'select {delete} as type_id, {old_key} as after, {old_image} as before from old_rows o', ''),
    ('truncated', '{table}', 'select {delete} as type_id, {old_key} as after, {old_image} as before from {table} o', ''),
    ('updated', 'new_rows', format(v_update, 'old_rows o', 'new_rows n'), v_deletes_first),
    ('updated_again', 'new_rows', format(v_update,
      '(select distinct on ({keys}) * from (select *, row_number() over () as "coordination place" from old_rows) r '
      'order by {keys}, "coordination place") o',
      '(select n.* from {table} n where exists ('
      'select from (select {keys} from old_rows union all select {keys} from new_rows) o where {same_key})) n'), v_deletes_first)
    ) s (name, rows, source, places);
  execute coordination._fill_text(coordination._fill('capture', v_packs), jsonb_build_object(
    'table', v_table,
    'function', v_function,
    'insert', coordination._type(v_name || '.Insert'),
    'update', coordination._type(v_name || '.Update'),
    'delete', coordination._type(v_name || '.Delete'),
    'mode', quote_literal(v_entity.mode),
    'settings', coordination._settings(v_table),
    'new_image', coordination._image(v_table, 'n', v_entity.columns),
    'old_image', coordination._image(v_table, 'o', v_entity.columns),
    'old_key', coordination._image(v_table, 'o', v_entity.key_columns),
    'keys', coordination._list(v_entity.key_columns),
    'first_key', quote_ident(v_entity.key_columns[1]),
    'same_key', coordination._list(v_entity.key_columns, 'o.%1$I = n.%1$I', ' and ')));
  execute format('revoke execute on function coordination.%s() from public', v_function);
  foreach v_operation in array '{insert,update,delete,truncate}'::text[] loop
    execute format('create or replace trigger %I %s %s on %s %s for each statement execute function coordination.%s()',
      'coordination_' || v_operation,
      case v_operation when 'truncate' then 'before' else 'after' end,
      v_operation, v_table,
      case v_operation when 'insert' then 'referencing new table as new_rows'
        when 'update' then 'referencing old table as old_rows new table as new_rows'
        when 'delete' then 'referencing old table as old_rows' else '' end,
      v_function);
  end loop;
  v_added := array(select c from unnest(v_entity.columns) c where c <> all (v_known));
  if p_with_rows and (v_known is null or v_added <> '{}') then
    v_rows := format('select %s from %s o where %s', coordination._list(v_entity.key_columns), v_table,
      case when v_known is null then 'true' else coordination._list(v_added, '%I is not null', ' or ') end);
    execute format('select exists (%s)', v_rows) into v_found;
    -- Without rows the transaction does not draw an event number.
    if v_found then perform coordination._send_rows(v_entity, null, v_rows, case when v_known is not null then v_added end); end if;
  end if;
  return v_name;
end $$;

-- Stops capturing changes of the table.  Captured events are published, and undone if they are cancelled, as long as the table
-- exists; the entity is removed with its last event.  The table may be tracked under another name.  Raises PC001, PC010.
create or replace function coordination.untrack(p_entity text) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_entity coordination.entity;
begin
  perform coordination._require('writer');
  perform coordination._lock(0);
  v_entity := coordination._entity(p_entity);
  -- Drops its triggers, whatever the current name of the table.
  execute format('drop function if exists coordination.%I() cascade', 'capture_' || p_entity);
  update coordination.entity e set role = 'untracked' where e.name = v_entity.name;
end $$;

create or replace function coordination._find_table(p_table text) returns regclass
language plpgsql stable set search_path from current as $$
declare
  -- The pinned path contains only the catalogue and this schema; an unqualified name means the schema public.
  v_table regclass := coalesce(to_regclass(p_table),
    case when cardinality(parse_ident(p_table)) = 1 then to_regclass('public.' || p_table) end);
begin
  perform coordination._refuse_if(v_table is null or not exists (select from pg_class c where c.oid = v_table and c.relkind in ('r', 'p')),
    'PC001', format('there is no table %s', left(p_table, 130)), 'name it as in SQL, with its schema: public."DummyItem"');
  return v_table;
end $$;
