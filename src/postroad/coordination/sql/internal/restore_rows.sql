-- A query of the rows of one entity that an event changed, once each, with the event as $1.  Columns: "coordination before", the first
-- before-image; "coordination after", the last after-image, null if there is none; and the key.
create or replace function coordination._net(p_entity coordination.entity) returns text
language sql stable set search_path from current as $$
  select format(
    'select distinct on (%1$s) first_value(p.before) over w as "coordination before", '
    'case last_value(t."Operation") over w when ''Delete'' then null else last_value(p.after) over w end as "coordination after", '
    'max(p.id) over w as "coordination version", k.* '
    'from coordination.payload_row p join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = %2$L '
    'cross join lateral json_to_record(p.after) as k (%3$s) where p.event_id = $1 '
    'window w as (partition by %1$s order by p.sequence rows between unbounded preceding and unbounded following)',
    coordination._list((p_entity).key_columns, 'k.%I'), (p_entity).name,
    coordination._definitions(coordination._table(p_entity), (p_entity).key_columns))
$$;

-- The columns of the table that every image of the event also has: a column that was added since is not changed.  A delete without a
-- before-image has no columns: the row that it deleted was inserted by a cancelled event.
create or replace function coordination._columns_of(p_entity coordination.entity, p_event bigint) returns text[]
language sql stable set search_path from current as $$
  select array(
    select c.name from coordination._columns(coordination._table(p_entity)) c
    where not exists (
      select from coordination.payload_row p join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = (p_entity).name
      where p.event_id = p_event and coalesce(p.before, p.after) -> c.name is null
        and (p.before is not null or t."Operation" <> 'Delete')))
$$;

-- An expression: whether two rows have the same values.  They are compared as text, so that every type can be compared; values are
-- compared, not images, so that the settings of the session that wrote an image do not matter.
create or replace function coordination._same(p_row text, p_other text, p_columns text[]) returns text
language sql immutable set search_path from current as $$
  select coalesce(string_agg(format('%s.%I::text is not distinct from %s.%2$I::text', p_row, c, p_other), ' and '), 'true')
  from unnest(p_columns) c
$$;

-- Restores rows of one entity that one event changed: p_step erase deletes the rows that the event created, p_step write restores the
-- others.  p_net is a query of the rows, p_columns their columns; by default all rows.  Raises an integrity violation if other rows depend
-- on them.
create or replace function coordination._restore_entity(
  p_entity coordination.entity, p_event bigint, p_step text, p_compensate boolean, p_columns text[] default null, p_net text default null,
  out wanted integer, out done integer)
language plpgsql set search_path from current as $$
declare
  v_table   regclass := coordination._table(p_entity);
  v_keys    text[] := (p_entity).key_columns;
  v_columns text[];
  v_others  text[];
  v_net     text := coalesce(p_net, coordination._net(p_entity));
  v_key     text := coordination._list(v_keys, 'o.%1$I = n.%1$I', ' and ');
  v_after   text;
  v_more    integer;
begin
  done := 0;
  execute format('select count(*) from (%s) n where case $2 when ''erase'' then n."coordination before" is null and n."coordination after" is not null '
    'else n."coordination before"::text is distinct from n."coordination after"::text and n."coordination before" is not null end', v_net) into wanted using p_event, p_step;
  if wanted = 0 then return; end if;
  v_columns := coalesce(p_columns, coordination._columns_of(p_entity, p_event));
  v_others := array(select c from unnest(v_columns) c where c <> all (v_keys || coordination._fixed(v_table)));
  v_after := format('cross join lateral json_to_record(n."coordination after") as a (%s)', coordination._definitions(v_table, v_columns));
  if p_step = 'erase' then
    perform coordination._refuse_cascade(p_entity, p_event, v_columns, v_net);
    execute format('delete from %s o using (%s) n %s where n."coordination before" is null and n."coordination after" is not null and %s and %s',
      v_table, v_net, v_after, v_key, coordination._same('o', 'a', v_others)) using p_event;
    get diagnostics done = row_count;
  else
    if v_others <> '{}' then
      execute format('update %s o set (%s) = row(%s) from (%s) n cross join lateral json_to_record(n."coordination before") as r (%s) %s '
        'where n."coordination before"::text <> n."coordination after"::text and %s and %s',
        v_table, coordination._list(v_others), coordination._values(v_table, 'r', v_others), v_net,
        coordination._definitions(v_table, v_others), v_after, v_key, coordination._same('o', 'a', v_others)) using p_event;
      get diagnostics done = row_count;
    end if;
    execute format('insert into %s (%s) overriding system value select %s from (%s) n '
      'cross join lateral json_to_record(n."coordination before") as r (%s) where n."coordination before" is not null and n."coordination after" is null%s',
      v_table, coordination._list(v_columns), coordination._values(v_table, 'r', v_columns), v_net,
      coordination._definitions(v_table, v_columns),
      -- Not possible with a deferrable index; then a duplicate is a violation.
      case when not exists (select from pg_index i where i.indrelid = v_table and not i.indimmediate) then ' on conflict do nothing' end)
    using p_event;
    get diagnostics v_more = row_count;
    done := done + v_more;
  end if;
  if p_compensate and done < wanted and p_step = 'write' and v_others <> '{}' then
    -- For rows that were changed since, the columns that the event set are restored if they still have its value.
    execute format('update %s o set (%s) = row(%s) from (%s) n cross join lateral json_to_record(n."coordination before") as r (%s) %s '
      'where n."coordination before" is not null and n."coordination after" is not null and %s and not (%s) and not (%s)',
      v_table, coordination._list(v_others),
      (select string_agg(format(
        'case when r.%1$I::text is distinct from a.%1$I::text and o.%1$I::text is not distinct from a.%1$I::text then %2$s else o.%1$I end',
        c, coordination._values(v_table, 'r', array[c])), ', ' order by place)
       from unnest(v_others) with ordinality u (c, place)),
      v_net, coordination._definitions(v_table, v_others), v_after, v_key,
      coordination._same('o', 'a', v_others), coordination._same('o', 'r', v_others)) using p_event;
  end if;
end $$;

-- Raises a foreign key violation if deleting the event's rows would delete or change other rows: a reference that cascades, or sets null,
-- would not prevent it.  Children that the event inserted are already deleted.
-- Locks the rows first, so that no further child can refer to them.
create or replace function coordination._refuse_cascade(
  p_entity coordination.entity, p_event bigint, p_columns text[], p_net text) returns void
language plpgsql set search_path from current as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_keys   text[] := (p_entity).key_columns;
  v_erased text;
  v_child  record;
  v_found  boolean;
begin
  v_erased := format('exists (select from (%s) n cross join lateral json_to_record(n."coordination after") as a (%s) '
    'where n."coordination before" is null and n."coordination after" is not null and %s and %s)',
    p_net, coordination._definitions(v_table, p_columns),
    coordination._list(v_keys, '{row}.%1$I = n.%1$I', ' and '),
    coordination._same('{row}', 'a', array(select c from unnest(p_columns) c where c <> all (v_keys))));
  execute format('select from %s o where %s for update', v_table, replace(v_erased, '{row}', 'o')) using p_event;
  for v_child in
    select f.conrelid::regclass as name, f.conrelid = v_table as is_same, (
      select string_agg(format('x.%I = o.%I', c.attname, p.attname), ' and ')
      from unnest(f.conkey, f.confkey) u (child, parent)
      join pg_attribute c on c.attrelid = f.conrelid and c.attnum = u.child
      join pg_attribute p on p.attrelid = f.confrelid and p.attnum = u.parent) as refers
    from pg_constraint f
    where f.contype = 'f' and f.confrelid = v_table and f.confdeltype in ('c', 'n', 'd') and f.conparentid = 0
  loop
    begin
      execute format('select exists (select from %s x join %s o on %s where %s and not %s)', v_child.name, v_table, v_child.refers,
        replace(v_erased, '{row}', 'o'), case when v_child.is_same then replace(v_erased, '{row}', 'x') else 'false' end) into v_found using p_event;
    exception when insufficient_privilege then
      v_found := true;
    end;
    if v_found then
      raise exception using errcode = 'foreign_key_violation',
        message = format('rows of %s that the event made are referred to by rows of %s', (p_entity).name, v_child.name);
    end if;
  end loop;
end $$;

-- Sends the current values of rows of a cancelled event that were changed since to Readers.  A later event that is still open must not
-- restore the cancelled values: its before-images are set to the values before the cancelled event.  Later events are those
-- that changed the row later, published or not, except the restoring event.
create or replace function coordination._leave_rows(p_entity coordination.entity, p_event coordination."AppEvent") returns void
language plpgsql set search_path from current as $$
begin
  if to_regclass(format('%I.%I', (p_entity).schema_name, (p_entity).table_name)) is null then return; end if;
  -- Images that are rewritten one by one need separate rows.
  with packed as (
    delete from coordination.payload p using coordination."AppEvent" e, coordination."AppEventType" t
    where e."Id" = p.event_id and e."FinishedAt" is null and e."Id" <> p_event."Id" and p.count is not null
      and t."Id" = p.type_id and t."Entity" = (p_entity).name and p.id > (select min(x.id) from coordination.payload x where x.event_id = p_event."Id")
    returning p)
  insert into coordination.payload (event_id, sequence, id, type_id, after, before, changed)
  select r.* from packed k cross join lateral coordination._unpack(k.p) r;
  execute format(
    -- Materialized: the images are parsed once, and not once per row of the event.
    'with later as materialized ('
    '  select p.event_id as "coordination event", p.sequence as "coordination sequence", p.id as "coordination id", '
    '    e."FinishedAt" is null as "coordination is open", o.* '
    '  from coordination."AppEvent" e '
    '  join coordination.payload_row p on p.event_id = e."Id" and p.id > (select min(x.id) from coordination.payload x where x.event_id = $1) '
    '  join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = $3 '
    '  cross join lateral json_to_record(p.after) as o (%3$s) '
    '  where e."Id" is distinct from $2 and e."AppEventStatusId" <> coordination._status(''Canceled'')), '
    'following as ('
    '  select distinct on (%1$s) o."coordination event" as event_id, o."coordination sequence" as sequence, o."coordination is open" as is_open, '
    '    n."coordination before" as earlier, n."coordination after" as made '
    '  from (%2$s) n join later o on o."coordination id" > n."coordination version" and %4$s '
    '  order by %1$s, o."coordination id") '
    'update coordination.payload p set changed = coalesce(p.changed, coordination._changed(p.before, p.after)), before = case when f.earlier is null or p.before is null then f.earlier else ('
    '  select json_object_agg(k.key, case when (f.earlier -> k.key)::text is distinct from (f.made -> k.key)::text '
    '    and k.value::text is not distinct from (f.made -> k.key)::text then f.earlier -> k.key else k.value end) '
    '  from json_each(p.before) k) end '
    'from following f where f.is_open and p.event_id = f.event_id and p.sequence = f.sequence',
    coordination._list((p_entity).key_columns, 'n.%I'), coordination._net(p_entity),
    coordination._definitions(coordination._table(p_entity), (p_entity).key_columns),
    coordination._list((p_entity).key_columns, 'o.%1$I = n.%1$I', ' and '))
  using p_event."Id", coordination.current_event(), (p_entity).name;
  perform coordination._send_rows(p_entity, p_event."Id", coordination._net(p_entity), null);
end $$;

-- Writes the current state of rows into this transaction's event, so that Readers have the same: existing rows as updates, missing ones as
-- deletes.  p_keys is a query of their keys, with an event as $1.  An update has its own image as before-image: cancelling it
-- changes nothing.  p_changed: the columns that Readers do not have yet; null: all.
create or replace function coordination._send_rows(
  p_entity coordination.entity, p_event bigint, p_keys text, p_changed text[]) returns void
language plpgsql set search_path from current
set timezone = 'UTC' set datestyle = 'ISO' set intervalstyle = 'postgres' set extra_float_digits = 1 set bytea_output = 'hex'
as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_keys   text[] := (p_entity).key_columns;
  v_update integer := coordination._type((p_entity).name || '.Update');
  v_delete integer := coordination._type((p_entity).name || '.Delete');
  v_event  bigint;
  v_from   integer;
  v_is_new boolean;
  v_count  integer;
begin
  select * into v_event, v_from, v_is_new from coordination._current_event();
  execute format('insert into coordination.payload (event_id, sequence, id, type_id, after, before, changed) '
    'select $2, $3 + row_number() over (), nextval(''coordination.payload_id''), '
    'case when o.%1$I is null then $5 else $4 end, case when o.%1$I is null then %2$s else %3$s end, '
    'case when o.%1$I is not null then %3$s end, $6 '
    'from (%4$s) n left join %5$s o on %6$s',
    v_keys[1], coordination._image(v_table, 'n', v_keys), coordination._image(v_table, 'o', (p_entity).columns),
    p_keys, v_table, coordination._list(v_keys, 'o.%1$I = n.%1$I', ' and '))
  using p_event, v_event, v_from, v_update, v_delete, p_changed;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform coordination._note_event(v_event, v_from + v_count, v_is_new, v_update, 'replicate');
  end if;
end $$;
