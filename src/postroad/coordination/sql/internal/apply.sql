-- Applies payloads to the entities' tables: those of a page (p_rows) or those staged for some events.
-- One statement per entity and operation, parents before children; where that meets a constraint, in
-- another order, at last row by row as the Writer did it.
-- Whatever the tables refuse is raised, and nothing was applied.
--
-- An image is the whole row, so after a cancelled event it may contain values of that event until the Writer has restored them.  For these
-- entities an update writes only the columns that it changed, and leaves a row alone that only the cancelled event made.
create or replace function coordination._apply(p_rows jsonb, p_events bigint[], p_columns jsonb) returns void
language plpgsql set search_path from current as $$
begin
  begin
    perform coordination._apply_at_once(p_rows, p_events, p_columns, '{erase,write}');
    set constraints all immediate;
  exception when integrity_constraint_violation then
    begin
      -- A row that goes may be referred to until others are written: a reference that cannot be deferred minds.
      perform coordination._apply_at_once(p_rows, p_events, p_columns, '{write,erase}');
      set constraints all immediate;
    exception when integrity_constraint_violation then
      perform coordination._apply_in_order(p_rows, p_events);
      set constraints all immediate;
    end;
  end;
end $$;

create or replace function coordination._apply_at_once(
  p_rows jsonb, p_events bigint[], p_columns jsonb, p_steps text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_part    record;
  v_parts   jsonb;
  v_ignored text[] := (select p.ignored from coordination.progress p);
  v_narrow  text[] := coordination._unrestored(p_events);
begin
  set constraints all deferred;
  -- What there is to do, once; a payload without some column of its entity is told apart from one with a null.
  if p_rows is not null then
    select jsonb_agg(s) into v_parts from (
      select x.n, bool_or(x.o = 'D') as erases, bool_or(x.o <> 'D') as writes,
        bool_and(x.o = 'D' or (x.o = 'I' or x.n <> all (v_narrow))
          and x.c ?& array(select jsonb_array_elements_text(p_columns -> x.n))) as is_whole
      from jsonb_to_recordset(p_rows) x (n text, o text, c jsonb) where x.n <> all (v_ignored) group by x.n) s;
  else
    select jsonb_agg(s) into v_parts from (
      select t."Entity" as n, bool_or(t."Operation" = 'Delete') as erases, bool_or(t."Operation" <> 'Delete') as writes,
        bool_and(t."Operation" = 'Delete' or (t."Operation" = 'Insert' or t."Entity" <> all (v_narrow))
          and x.after::jsonb ?& array(select jsonb_array_elements_text(p_columns -> t."Entity"))) as is_whole
      from coordination.payload x join coordination."AppEventType" t on t."Id" = x.type_id
      where x.event_id = any (p_events) and t."Entity" <> all (v_ignored) group by t."Entity") s;
  end if;
  if exists (select from jsonb_to_recordset(v_parts) p (is_whole boolean) where not p.is_whole) then
    perform coordination._apply_in_order(p_rows, p_events);
    return;
  end if;
  for v_part in
    select p.*, coordination._ensure_replica(p.n, array(select jsonb_array_elements_text(p_columns -> p.n))) as entity
    from jsonb_to_recordset(v_parts) p (n text, erases boolean, writes boolean)
  loop
    null;
  end loop;
  for v_part in
    select e.name, u.step
    from unnest(p_steps) with ordinality u (step, place)
    cross join jsonb_to_recordset(v_parts) p (n text, erases boolean, writes boolean)
    join coordination.entity e on e.name = p.n
    where case u.step when 'erase' then p.erases else p.writes end
    -- Children are erased before their parents, parents written before their children.
    order by u.place, case u.step when 'erase' then -e.level else e.level end, e.name
  loop
    execute format('select coordination.%I($1, $2)', v_part.step || '_' || v_part.name) using p_rows, p_events;
  end loop;
end $$;

-- The entities of cancelled events that neither an earlier event nor one of p_events restores.  One that still waits to be dropped counts.
create or replace function coordination._unrestored(p_events bigint[]) returns text[]
language sql stable set search_path from current as $$
  select array(
    select distinct e.name from (
      select u.event_id, u.entities from coordination.unrestored u
      union all
      select s.event_id, s.entities from coordination.staging s where s.outcome = 'cancel') u
    cross join lateral unnest(u.entities) e (name)
    where not exists (select from coordination.staging s where s.event_id = any (p_events) and s.cancels = u.event_id))
$$;

-- Row by row, as the Writer did it, each with the columns that are present in its image.
create or replace function coordination._apply_in_order(p_rows jsonb, p_events bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_row     record;
  v_entity  coordination.entity;
  v_table   regclass;
  v_columns text[];
  v_others  text[];
  v_ignored text[] := (select p.ignored from coordination.progress p);
  v_narrow  text[] := coordination._unrestored(p_events);
  v_count   integer;
begin
  set constraints all deferred;
  for v_row in
    select x.p, x.s, x.n, x.o, x.c, x.u, false as is_tried
    from jsonb_to_recordset(p_rows) x (p bigint, s integer, n text, o text, c jsonb, u text[])
    where p_rows is not null
    union all
    select s.position, x.sequence, t."Entity", left(t."Operation", 1), x.after::jsonb, x.changed,
      s.mode = 'two-phase' and s.outcome is null
    from coordination.payload x
    join coordination.staging s on s.event_id = x.event_id
    join coordination."AppEventType" t on t."Id" = x.type_id
    where p_rows is null and x.event_id = any (p_events)
    order by 1, 2
  loop
    continue when v_row.n = any (v_ignored);
    v_entity := coordination._entity(v_row.n);
    v_table := coordination._table(v_entity);
    v_columns := array(select c from unnest(v_entity.columns) c where v_row.c ? c);
    if not v_entity.is_subset and exists (select from jsonb_object_keys(v_row.c) k where k <> all (v_entity.columns)) then
      perform coordination._ensure_replica(v_row.n, array(select jsonb_object_keys(v_row.c)));
    end if;
    if v_row.o = 'D' then
      execute format('delete from %s t using jsonb_to_record($1) as g (%s) where %s', v_table,
        coordination._definitions(v_table, v_entity.key_columns),
        coordination._list(v_entity.key_columns, 't.%1$I = g.%1$I', ' and ')) using v_row.c;
    elsif v_row.o = 'U' and v_row.n = any (v_narrow) and v_row.u <> '{}' then
      v_others := array(select c from unnest(v_columns) c where c = any (v_row.u) and c <> all (v_entity.key_columns));
      -- Of a subset of the columns perhaps none was changed.
      continue when v_others = '{}';
      execute format('update %s t set (%s) = row(%s) from jsonb_to_record($1) as g (%s) where %s', v_table,
        coordination._list(v_others), coordination._values(v_table, 'g', v_others),
        coordination._definitions(v_table, v_columns),
        coordination._list(v_entity.key_columns, 't.%1$I = g.%1$I', ' and ')) using v_row.c;
      get diagnostics v_count = row_count;
      if v_count = 0 and v_row.is_tried then
        raise exception using errcode = 'foreign_key_violation',
          message = format('a row of %s was made by an event that was cancelled', v_row.n);
      end if;
    else
      v_others := array(select c from unnest(v_columns) c where c <> all (v_entity.key_columns));
      execute format('insert into %s (%s) overriding system value select %s from jsonb_to_record($1) as g (%s) on conflict (%s) %s',
        v_table, coordination._list(v_columns), coordination._values(v_table, 'g', v_columns),
        coordination._definitions(v_table, v_columns), coordination._list(v_entity.key_columns),
        coalesce('do update set ' || coordination._list(nullif(v_others, '{}'), '%1$I = excluded.%1$I'), 'do nothing'))
      using v_row.c;
    end if;
  end loop;
end $$;
