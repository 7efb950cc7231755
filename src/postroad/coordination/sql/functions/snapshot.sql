-- At the Writer, inside the repeatable-read transaction that copies the tables.  position: the last position in the copy; included: events
-- in the copy that had no position yet.  Raises PC010.
create or replace function coordination.snapshot() returns jsonb
language plpgsql stable security definer set search_path from current as $$
begin
  perform coordination._require('writer');
  return (
    select jsonb_build_object(
      'position', greatest((select max(e."Position") from coordination."AppEvent" e), (select a.purged_to from coordination.acknowledged a)),
      'included', coalesce((select jsonb_agg(e."Id") from coordination."AppEvent" e where not e."IsPublished"), '[]'),
      'columns', coalesce(jsonb_object_agg(e.name, array(
        select c from unnest(e.columns) c where c in (select k.name from coordination._columns(to_regclass(t.source)) k))), '{}'),
      'tables', coalesce(jsonb_object_agg(e.name, t.source), '{}'))
    -- Includes untracked entities, because the cursor skips their events, but only columns that still exist.
    from coordination.entity e cross join lateral (select format('%I.%I', e.schema_name, e.table_name) as source) t
    where e.role in ('tracked', 'untracked') and to_regclass(t.source) is not null);
end $$;

-- At the Reader: creates a temporary table for the copy of one entity, until the end of the transaction.
-- Returns the columns to copy, in order.  Raises PC001, PC010, PC012.
create or replace function coordination.open_snapshot(p_entity text, p_columns text[]) returns text[]
language plpgsql security definer set search_path from current as $$
declare
  v_entity coordination.entity;
  v_shared text[];
begin
  perform coordination._require('reader');
  perform from coordination.progress for update;
  v_entity := coordination._ensure_replica(p_entity, p_columns);
  v_shared := array(select c from unnest(v_entity.columns) c where c = any (p_columns));
  execute format('create temporary table %I on commit drop as select %s from %s limit 0',
    'snapshot_' || p_entity, coordination._list(v_shared), coordination._table(v_entity));
  return v_shared;
end $$;

-- Writes the rows of the copy of one entity.
create or replace function coordination._write_snapshot(p_entity coordination.entity, p_columns text[]) returns void
language plpgsql set search_path from current as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_copy   text := format('pg_temp.%I', 'snapshot_' || (p_entity).name);
  v_key    text := coordination._list((p_entity).key_columns, 's.%1$I = t.%1$I', ' and ');
  v_write  text := format('insert into %s (%s) overriding system value select %2$s from %s s where %%s on conflict (%s) %s',
    v_table, coordination._list(p_columns), v_copy, coordination._list((p_entity).key_columns),
    coordination._on_conflict(p_columns, (p_entity).key_columns));
  v_row    tid;
  v_before bigint;
  v_left   bigint;
begin
  execute format(v_write, 'true');
exception when unique_violation then
  -- Unique values have moved between rows: a row is written once another one has left its values; rows in a cycle are deleted first.
  execute format('delete from %s s using %s t where %s and %s', v_copy, v_table, v_key, coordination._same('s', 't', p_columns));
  loop
    execute format('select count(*) from %s', v_copy) into v_left;
    exit when v_left = 0;
    if v_left = v_before then
      execute format('delete from %s t using %s s where %s', v_table, v_copy, v_key);
      execute format(v_write, 'true');
      return;
    end if;
    v_before := v_left;
    for v_row in execute format('select s.ctid from %s s', v_copy) loop
      begin
        execute format(v_write, 's.ctid = $1') using v_row;
        execute format('delete from %s s where s.ctid = $1', v_copy) using v_row;
      exception when unique_violation then null;
      end;
    end loop;
  end loop;
end $$;

-- At the Reader: replaces the rows of all entities with the copy, and sets the cursor.  Staged events are dropped, because the copy
-- contains them or they are pulled again.  Raises PC010.
create or replace function coordination.close_snapshot(p_snapshot jsonb) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_step   record;
  v_entity coordination.entity;
begin
  perform coordination._require('reader');
  perform from coordination.progress for update;
  set constraints all deferred;
  for v_step in
    select * from coordination._steps(array(select jsonb_object_keys(p_snapshot -> 'columns'))) s where (s.entity).role = 'replica'
  loop
    v_entity := v_step.entity;
    if v_step.step = 'erase' then
      execute format('delete from %s t where not exists (select from pg_temp.%I s where %s)', coordination._table(v_entity),
        'snapshot_' || v_entity.name, coordination._list(v_entity.key_columns, 's.%1$I = t.%1$I', ' and '));
      continue;
    end if;
    perform coordination._write_snapshot(v_entity,
      array(select c from unnest(v_entity.columns) c where p_snapshot -> 'columns' -> v_entity.name ? c));
  end loop;
  set constraints all immediate;
  delete from coordination.payload p using coordination.staging s where s.event_id = p.event_id;
  perform alerts.clear(coordination._parked_key(s.event_id)) from coordination.staging s where s.reason is not null;
  delete from coordination.staging;
  -- A decision about a later event is sent again when this Reader reports the event.
  delete from coordination.early_decision;
  delete from coordination.unrestored;
  update coordination.progress p set position = (p_snapshot ->> 'position')::bigint, sequence = 0, has_snapshot = true,
    generation = p.generation + 1, needs_snapshot = false,
    columns = p_snapshot -> 'columns',
    included = array(select jsonb_array_elements_text(p_snapshot -> 'included')::bigint);
  perform coordination.announce();
end $$;
