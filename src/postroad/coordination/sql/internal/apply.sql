-- Applies payloads to the entities' tables: those of a page, or those staged for some events.  One statement per entity and operation,
-- parents before children; if that violates a constraint, in another order, and finally row by row in the Writer's order.  If the tables
-- refuse a row, the error is raised and nothing is applied.
--
-- An image is the whole row, so after a cancelled event it may contain values of that event until the Writer has restored them.  For these
-- entities an update writes only the columns that it changed, and skips a row that only the cancelled event created.
create or replace function coordination._apply(p_page coordination.page, p_events bigint[], p_columns jsonb) returns void
language plpgsql set search_path from current as $$
begin
  perform coordination._apply_together(p_page, p_events, p_columns, '{erase,write}');
  set constraints all immediate;
exception when integrity_constraint_violation then
  begin
    -- A row to delete may be referenced until others are written, by a constraint that cannot be deferred.
    perform coordination._apply_together(p_page, p_events, p_columns, '{write,erase}');
    set constraints all immediate;
  exception when integrity_constraint_violation then
    perform coordination._apply_in_order(p_page, p_events);
    set constraints all immediate;
  end;
end $$;

-- The payloads of a page, or those staged for some events; images are arrays.  Without a search_path, so that the planner inlines it.
create or replace function coordination._changes(p_page coordination.page, p_events bigint[])
returns table (event_position bigint, sequence integer, entity text, operation text, afters json, befores json, changed text[],
  is_trial boolean)
language sql stable as $$
  select x.p, x.s, x.n, x.o, x.afters::json, x.befores::json, x.u, false
  from rows from (jsonb_to_recordset((p_page).rows) as (p bigint, s integer, n text, o text, u text[]),
    unnest((p_page).afters), unnest((p_page).befores)) x (p, s, n, o, u, afters, befores)
  where (p_page).rows is not null
  union all
  select s.position, x.sequence, t."Entity", left(t."Operation", 1),
    case when x.count is null then json_build_array(x.after) else x.after end, x.before, x.changed,
    s.mode = 'two-phase' and s.outcome is null
  from coordination.payload x
  join coordination.staging s on s.event_id = x.event_id
  join coordination."AppEventType" t on t."Id" = x.type_id
  where (p_page).rows is null and x.event_id = any (p_events)
$$;

create or replace function coordination._apply_together(
  p_page coordination.page, p_events bigint[], p_columns jsonb, p_steps text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_part   record;
  v_parts  jsonb;
  v_narrow text[] := coordination._unrestored(p_events);
begin
  set constraints all deferred;
  -- A payload without a column of its entity differs from one with null in that column; the rows of one payload have the same columns.
  select jsonb_agg(s) into v_parts from (
    select x.entity, bool_or(x.operation = 'D') as erases, bool_or(x.operation <> 'D') as writes,
      bool_and(x.operation = 'D' or (x.operation = 'I' or x.entity <> all (v_narrow))
        and (x.afters -> 0)::jsonb ?& array(select jsonb_array_elements_text(p_columns -> x.entity))) as is_whole
    from coordination._changes(p_page, p_events) x
    where x.entity <> all ((select p.ignored from coordination.progress p)::text[]) group by x.entity) s;
  if exists (select from jsonb_to_recordset(v_parts) p (is_whole boolean) where not p.is_whole) then
    perform coordination._apply_in_order(p_page, p_events);
    return;
  end if;
  perform coordination._ensure_replica(p.entity, array(select jsonb_array_elements_text(p_columns -> p.entity)))
  from jsonb_to_recordset(v_parts) p (entity text);
  for v_part in
    select e.name, u.step
    from unnest(p_steps) with ordinality u (step, place)
    cross join jsonb_to_recordset(v_parts) p (entity text, erases boolean, writes boolean)
    join coordination.entity e on e.name = p.entity
    where case u.step when 'erase' then p.erases else p.writes end
    -- Children are deleted before their parents, parents written before their children.
    order by u.place, case u.step when 'erase' then -e.level else e.level end, e.name
  loop
    execute format('select coordination.%I($1, $2)', v_part.step || '_' || v_part.name) using p_page, p_events;
  end loop;
end $$;

-- The entities of cancelled events that neither an earlier event nor one of p_events restores, including cancelled events that have yet
-- to be dropped.
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

-- Row by row in the Writer's order, each with the columns that are present in its image.
create or replace function coordination._apply_in_order(p_page coordination.page, p_events bigint[]) returns void
language plpgsql set search_path from current as $$
declare
  v_row     record;
  v_entity  coordination.entity;
  v_table   regclass;
  v_columns text[];
  v_others  text[];
  v_narrow  text[] := coordination._unrestored(p_events);
  v_count   integer;
begin
  set constraints all deferred;
  for v_row in
    select x.entity as n, x.operation as o, r.after::jsonb as c, x.is_trial,
      case when x.operation = 'U' and x.entity = any (v_narrow) then coalesce(x.changed, coordination._changed(r.before, r.after)) end as u
    from coordination._changes(p_page, p_events) x
    cross join lateral rows from (json_array_elements(x.afters), json_array_elements(x.befores)) with ordinality r (after, before, place)
    where x.entity <> all ((select p.ignored from coordination.progress p)::text[])
    order by x.event_position, x.sequence, r.place
  loop
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
    elsif v_row.u <> '{}' then
      v_others := array(select c from unnest(v_columns) c where c = any (v_row.u) and c <> all (v_entity.key_columns));
      -- With a subset of the columns, perhaps none of them was changed.
      continue when v_others = '{}';
      execute format('update %s t set (%s) = row(%s) from jsonb_to_record($1) as g (%s) where %s', v_table,
        coordination._list(v_others), coordination._values(v_table, 'g', v_others),
        coordination._definitions(v_table, v_columns),
        coordination._list(v_entity.key_columns, 't.%1$I = g.%1$I', ' and ')) using v_row.c;
      get diagnostics v_count = row_count;
      if v_count = 0 and v_row.is_trial then
        raise exception using errcode = 'foreign_key_violation',
          message = format('a row of %s was created by an event that was cancelled', v_row.n);
      end if;
    else
      execute format('insert into %s (%s) overriding system value select %s from jsonb_to_record($1) as g (%s) on conflict (%s) %s',
        v_table, coordination._list(v_columns), coordination._values(v_table, 'g', v_columns),
        coordination._definitions(v_table, v_columns), coordination._list(v_entity.key_columns),
        coordination._on_conflict(v_columns, v_entity.key_columns))
      using v_row.c;
    end if;
  end loop;
end $$;
