-- The type itself, or the base type of a domain.
create or replace function coordination._base(p_type oid) returns oid
language sql stable set search_path from current as $$
  with recursive base as (
    select t.oid, t.typbasetype from pg_type t where t.oid = p_type
    union all
    select t.oid, t.typbasetype from base b join pg_type t on t.oid = b.typbasetype)
  select b.oid from base b where b.typbasetype = 0
$$;

-- The columns of a table that are replicated: in order, without generated ones.
-- `type` has no length, so that a value that is too long is refused on assignment and never truncated.
-- `is_text`: replicated as text, because a conversion to JSON would not preserve the value.
create or replace function coordination._columns(p_table regclass)
returns table (name text, type text, is_text boolean)
language sql stable set search_path from current as $$
  select a.attname::text, format_type(a.atttypid, -1),
    b.type in ('json'::regtype, 'jsonb'::regtype)
      or exists (select from pg_cast c where c.castsource = b.type and c.castmethod = 'f'
                 and c.casttarget in ('json'::regtype, 'jsonb'::regtype))
  from pg_attribute a cross join lateral coordination._base(a.atttypid) b (type)
  where a.attrelid = p_table and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  order by a.attnum
$$;

-- The columns that an update cannot write, except with their default: identity columns that are always generated.
create or replace function coordination._fixed(p_table regclass) returns text[]
language sql stable set search_path from current
return array(select a.attname::text from pg_attribute a where a.attrelid = p_table and a.attidentity = 'a');

-- Settings of the function that writes images, so that the images do not depend on the session; none if the JSON of no column does.
create or replace function coordination._settings(p_table regclass) returns text
language sql stable set search_path from current as $$
  select case when exists (
    select from coordination._columns(p_table) c
    where not c.is_text and c.type <> all ('{bigint,integer,smallint,numeric,boolean,uuid,text,character varying,character,bpchar,
      date,timestamp without time zone}'))
  then $settings$set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' set extra_float_digits = 1
set bytea_output = 'hex'$settings$ else '' end
$$;

-- An expression: a value as JSON that can be converted back to the same value, through json and jsonb.  Numbers have no negative zero in
-- jsonb and JSON arrays have no bounds, so such values are written as text; json_to_record accepts text for every type.
-- p_for_clients: numerics are written as text as well, because most clients read JSON numbers as floating point.
create or replace function coordination._exact(p_value text, p_type regtype, p_for_clients boolean default false) returns text
language sql stable set search_path from current as $$
  select case
    when p_for_clients and b.oid = 'numeric'::regtype or b.typtype = 'c'
      or b.typcategory = 'A' and (e.typtype <> 'b' or e.oid in ('json'::regtype, 'jsonb'::regtype))
    then p_value || '::text'
    when b.oid in ('real'::regtype, 'double precision'::regtype) or b.typcategory = 'A'
    then format($case$case when %1$s::text ~ '^\[|(^|[{,])-0($|[,}])' then to_json(%1$s::text) else to_json(%1$s%2$s) end$case$,
      p_value, case when p_for_clients and e.oid = 'numeric'::regtype then '::text[]' else '' end)
    else p_value end
  from pg_type b left join pg_type e on e.oid = b.typelem
  where b.oid = coordination._base(p_type)
$$;

-- An expression: the row of an alias as JSON, with only these columns.
create or replace function coordination._image(p_table regclass, p_alias text, p_columns text[]) returns text
language sql stable set search_path from current as $$
  select format('(select row_to_json(x.*) from (select %s) x)', string_agg(format('%s as %I',
    case when c.is_text then format('%s.%I::text', p_alias, c.name)
      else coordination._exact(format('%s.%I', p_alias, c.name), c.type::regtype) end, c.name), ', '))
  from coordination._columns(p_table) c where c.name = any (p_columns)
$$;

-- A definition list for json_to_record, and the values to select from it.
create or replace function coordination._definitions(p_table regclass, p_columns text[]) returns text
language sql stable set search_path from current as $$
  select string_agg(format('%I %s', c.name, case when c.is_text then 'text' else c.type end), ', ')
  from coordination._columns(p_table) c where c.name = any (p_columns)
$$;

create or replace function coordination._values(p_table regclass, p_alias text, p_columns text[]) returns text
language sql stable set search_path from current as $$
  select string_agg(
    format('%s.%I%s', p_alias, c.name, case when c.is_text then '::' || c.type else '' end), ', '
    order by array_position(p_columns, c.name))
  from coordination._columns(p_table) c where c.name = any (p_columns)
$$;

create or replace function coordination._list(p_columns text[], p_format text default '%I', p_separator text default ', ')
returns text
language sql immutable set search_path from current as $$
  select string_agg(format(p_format, c), p_separator order by o) from unnest(p_columns) with ordinality u (c, o)
$$;

-- The action of an upsert: writes the columns that are not in the key.
create or replace function coordination._on_conflict(p_columns text[], p_keys text[]) returns text
language sql immutable set search_path from current as $$
  select coalesce('do update set ' || string_agg(format('%1$I = excluded.%1$I', c), ', '), 'do nothing')
  from unnest(p_columns) c where c <> all (p_keys)
$$;

create or replace function coordination._table(p_entity coordination.entity) returns regclass
language sql stable set search_path from current as $$
  select format('%I.%I', (p_entity).schema_name, (p_entity).table_name)::regclass
$$;

-- The entity of this name.  Raises PC001.
create or replace function coordination._entity(p_name text) returns coordination.entity
language plpgsql stable set search_path from current as $$
declare
  v_entity coordination.entity;
begin
  select * into v_entity from coordination.entity e where e.name = p_name;
  if not found then
    perform coordination._refuse_if(true, 'PC001', format('no entity is called %s', p_name),
      'see coordination.entity, or register it with coordination.track or coordination.replicate');
  end if;
  return v_entity;
end $$;

-- Checks and registers an entity.  Raises PC003 (no primary key), PC004 (a column has a name that is reserved for images), PC006 (name
-- too long), PC007 (the name or the table belongs to another entity).
create or replace function coordination._register(p_table regclass, p_name text, p_role text) returns coordination.entity
language plpgsql set search_path from current as $$
declare
  v_entity  coordination.entity;
  v_columns text[] := array(select c.name from coordination._columns(p_table) c);
  v_keys    text[] := (
    select array_agg(a.attname::text order by k.place)
    from pg_index i
    cross join unnest(i.indkey::smallint[]) with ordinality k (attnum, place)
    join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    where i.indrelid = p_table and i.indisprimary);
  v_taken   text;
begin
  -- 63 bytes of an identifier, minus AppEventRollbackFor.
  perform coordination._refuse_if(octet_length(p_name) > 44 or p_name !~ '^[[:alpha:]_][[:alnum:]_]*$',
    'PC006', format('invalid name of an entity: %s', left(p_name, 80)), 'letters, digits and underscores, 44 bytes at most');
  perform coordination._refuse_if(v_keys is null, 'PC003', format('table %s has no primary key', p_table),
    'rows are found again by their key; add one');
  perform coordination._refuse_if(not v_keys <@ v_columns, 'PC003', format('the key of table %s is computed by the database', p_table),
    'use a key that is stored as it was given');
  select c into v_taken from unnest(v_columns) c
  where c in ('AppEventId', 'Sequence', 'Operation', 'RowVersion', 'Present') limit 1;
  perform coordination._refuse_if(v_taken is not null, 'PC004', format('column %s of table %s has a name that images use', v_taken, p_table),
    'rename the column');
  select * into v_entity from coordination.entity e where e.name = p_name;
  -- The table of the entity, even if it was renamed: a tracked table has the entity's triggers.  Another table does not replace a dropped
  -- one, because events of the dropped one may still be undone; a replica uses the given table.
  perform coordination._refuse_if(v_entity.name is not null and (replace(v_entity.role, 'untracked', 'tracked') <> p_role or not coalesce(
    to_regclass(format('%I.%I', v_entity.schema_name, v_entity.table_name)) = p_table, v_entity.role = 'replica' or exists (
      select from pg_trigger t where t.tgrelid = p_table and t.tgfoid = to_regprocedure(format('coordination.%I()', 'capture_' || p_name))))),
    'PC007', format('entity %s is registered for another table', p_name), 'choose another name');
  insert into coordination.entity as e (name, role, schema_name, table_name, key_columns, columns)
  select p_name, p_role, n.nspname, c.relname, v_keys, v_columns
  from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_table
  on conflict (name) do update set role = excluded.role, schema_name = excluded.schema_name, table_name = excluded.table_name,
    version = e.version + case when e.columns = excluded.columns then 0 else 1 end,
    columns = excluded.columns, key_columns = excluded.key_columns, applied = null
  returning * into v_entity;
  perform coordination._type(p_name || o) from unnest('{.Insert,.Update,.Delete}'::text[]) o;
  perform coordination._show_images(v_entity);
  perform coordination._order_entities();
  return v_entity;
exception when unique_violation then
  perform coordination._refuse_if(true, 'PC007', format('table %s is registered under another name', p_table), 'use that name');
end $$;

-- The views that show the images of an entity with the types of its columns.
create or replace function coordination._show_images(p_entity coordination.entity) returns void
language plpgsql set search_path from current as $$
declare
  v_table regclass := coordination._table(p_entity);
  v_side  text;
begin
  foreach v_side in array '{Commit,Rollback}'::text[] loop
    execute format('drop view if exists coordination.%I', 'AppEvent' || v_side || 'For' || (p_entity).name);
    execute coordination._fill('images', jsonb_build_object(
      'view', quote_ident('AppEvent' || v_side || 'For' || (p_entity).name),
      'entity', quote_literal((p_entity).name),
      'image', case v_side when 'Commit' then 'after' else 'before' end,
      'definitions', coordination._definitions(v_table, (p_entity).columns),
      'values', coordination._values(v_table, 'r', (p_entity).columns)));
  end loop;
end $$;

-- Orders parents before children: the level of an entity is one above those that it refers to.  In a cycle the levels
-- stop growing at the number of entities; cycles need deferrable constraints.
-- `related`: entities that refer to it or that it refers to; their events keep their order.
create or replace function coordination._order_entities() returns void
language plpgsql set search_path from current as $$
begin
  update coordination.entity set level = 0 where level <> 0;
  for v_round in 1 .. (select count(*) from coordination.entity) loop
    update coordination.entity child set level = s.level from (
      select r.child, max(p.level) + 1 as level
      from coordination._references() r join coordination.entity p on p.name = r.parent
      group by r.child) s
    where s.child = child.name and s.level > child.level;
    exit when not found;
  end loop;
  update coordination.entity e set related = s.related from (
    select x.name, array(
      select r.parent from coordination._references() r where r.child = x.name
      union select r.child from coordination._references() r where r.parent = x.name order by 1) as related
    from coordination.entity x) s
  where s.name = e.name and s.related <> e.related;
end $$;

-- The references between entities, by the foreign keys of this database.
create or replace function coordination._references() returns table (child text, parent text)
language sql stable set search_path from current as $$
  with known as materialized (
    select e.name, to_regclass(format('%I.%I', e.schema_name, e.table_name))::oid as id from coordination.entity e)
  select distinct c.name, p.name
  from pg_constraint f join known c on c.id = f.conrelid join known p on p.id = f.confrelid
  where f.contype = 'f' and c.name <> p.name
$$;
