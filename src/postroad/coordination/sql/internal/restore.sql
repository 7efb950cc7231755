-- Undoes an event at the Writer.  True when it is Canceled afterwards; false when it was finished before, or when
-- rows were changed since and the policy is to refuse: then it stays Canceling, with an alert, and nothing was restored.
create or replace function coordination._cancel(p_event bigint, p_reason text) returns boolean
language plpgsql set search_path from current as $$
declare
  v_event  coordination."AppEvent";
  v_policy text;
  v_left   text;
  v_key    text := 'coordination.rollback.' || p_event;
begin
  select * into v_event from coordination."AppEvent" e where e."Id" = p_event for update;
  if not found or v_event."FinishedAt" is not null then return false; end if;
  if v_event."AppEventStatusId" <> 10 then
    update coordination."AppEvent" e set "AppEventStatusId" = 10, "Reason" = p_reason where e."Id" = p_event;
    insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceling}', 'writer', p_reason);
  end if;
  select min(e.on_conflict) into v_policy from coordination.entity e where e.name = any (v_event."Entities");
  -- 'compensate' is smaller than 'refuse': one entity that compensates lets the event be compensated.
  begin
    -- Somebody's open transaction must not hold up everybody's decisions: the Coordinator tells it again.
    if current_setting('lock_timeout') = '0' then
      perform set_config('lock_timeout', '500ms', true);
    end if;
    v_left := coordination._restore(v_event, v_policy = 'compensate');
  exception when lock_not_available or deadlock_detected then
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', p_reason, 'its rows are locked by another transaction')
    where e."Id" = p_event;
    return false;
  end;
  if v_left is not null and v_policy is distinct from 'compensate' then
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', p_reason, v_left) where e."Id" = p_event;
    if v_event."AppEventStatusId" <> 10 then
      insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceling}', 'writer', v_left);
    end if;
    perform coordination._raise_alert(v_key, 'error', format('event %s could not be rolled back', p_event),
      v_left || '. Nothing was restored. Mend the rows, then: postroad coordination retry ' || p_event);
    return false;
  end if;
  update coordination."AppEvent" e set "AppEventStatusId" = 11, "FinishedAt" = coordination.now()
  where e."Id" = p_event;
  insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceled}', 'writer', v_left);
  perform coordination._clear_alert(v_key);
  return true;
end $$;

-- Brings rows back to the before-image where they still equal the after-image, as an event of its own that Readers get
-- like any other.  Returns null, or what stood in the way; then nothing was changed, unless p_compensate: then
-- the columns that the event set and nobody touched since go back, and every row concerned is told as it is now.
create or replace function coordination._restore(p_event coordination."AppEvent", p_compensate boolean) returns text
language plpgsql set search_path from current as $$
declare
  v_entity coordination.entity;
  v_left   text := null;
  v_found  text;
  v_before text := current_setting('coordination.event', true);
begin
  -- Not part of whatever else this transaction does: one event for each that is undone.
  perform set_config('coordination.event', '', true), set_config('coordination.mode', 'replicate', true),
    set_config('coordination.cancels', p_event."Id"::text, true),
    set_config('coordination.correlation_id', p_event."CorrelationId"::text, true);
  begin
    set constraints all deferred;
    -- Children are erased before their parents, parents written before their children.
    for v_entity in select e.* from coordination.entity e where e.name = any (p_event."Entities") order by e.level desc, e.name loop
      v_found := coordination._restore_entity(v_entity, p_event."Id", 'erase', p_compensate);
      v_left := concat_ws('; ', v_left, v_found);
    end loop;
    for v_entity in select e.* from coordination.entity e where e.name = any (p_event."Entities") order by e.level, e.name loop
      v_found := coordination._restore_entity(v_entity, p_event."Id", 'write', p_compensate);
      v_left := concat_ws('; ', v_left, v_found);
    end loop;
    set constraints all immediate;
    v_left := nullif(v_left, '');
    if v_left is not null and not p_compensate then
      raise exception using errcode = 'PC099', message = v_left;
    end if;
    if v_left is not null then
      perform coordination._tell_rows(e, p_event."Id") from coordination.entity e where e.name = any (p_event."Entities");
    end if;
  exception
    when sqlstate 'PC099' then v_left := sqlerrm;
    when integrity_constraint_violation then
      v_left := sqlerrm;
      if p_compensate then
        perform coordination._tell_rows(e, p_event."Id") from coordination.entity e where e.name = any (p_event."Entities");
      end if;
  end;
  perform set_config('coordination.event', coalesce(v_before, ''), true), set_config('coordination.mode', '', true),
    set_config('coordination.cancels', '', true), set_config('coordination.correlation_id', '', true);
  return v_left;
end $$;

-- One entity of one event: rows that the event made are erased, others written back.  Each row's first before-image
-- and last after-image count.
create or replace function coordination._restore_entity(
  p_entity coordination.entity, p_event bigint, p_what text, p_compensate boolean) returns text
language plpgsql set search_path from current as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_keys   text[] := (p_entity).key_columns;
  v_others text[] := array(select c from unnest((p_entity).columns) c where c <> all (v_keys));
  v_wanted integer;
  v_done   integer := 0;
  v_more   integer;
  v_net    text;
begin
  v_net := format(
    'select distinct on (%1$s) first_value(p.before) over w as before, '
    'case last_value(t."Operation") over w when ''Delete'' then null else last_value(p.after) over w end as after, k.* '
    'from coordination.payload p join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = %2$L '
    'cross join lateral json_to_record(p.after) as k (%3$s) where p.event_id = $1 '
    'window w as (partition by %1$s order by p.sequence rows between unbounded preceding and unbounded following)',
    coordination._list(v_keys, 'k.%I'), (p_entity).name, coordination._definitions(v_table, v_keys));
  if p_what = 'erase' then
    execute format('select count(*) from (%s) n where before is null and after is not null', v_net) into v_wanted using p_event;
    if v_wanted = 0 then return null; end if;
    execute format('delete from %s o using (%s) n where n.before is null and n.after is not null and %s and %s::text = n.after::text',
      v_table, v_net, coordination._list(v_keys, 'o.%1$I = n.%1$I', ' and '),
      coordination._image(v_table, 'o', (p_entity).columns)) using p_event;
    get diagnostics v_done = row_count;
  else
    execute format('select count(*) from (%s) n where before is not null', v_net) into v_wanted using p_event;
    if v_wanted = 0 then return null; end if;
    if v_others <> '{}' then
      execute format('update %s o set (%s) = row(%s) from (%s) n cross join lateral json_to_record(n.before) as r (%s) '
        'where n.before is not null and n.after is not null and %s and %s::text = n.after::text',
        v_table, coordination._list(v_others), coordination._values(v_table, 'r', v_others), v_net,
        coordination._definitions(v_table, v_others), coordination._list(v_keys, 'o.%1$I = n.%1$I', ' and '),
        coordination._image(v_table, 'o', (p_entity).columns)) using p_event;
      get diagnostics v_done = row_count;
    end if;
    execute format('insert into %s (%s) overriding system value select %s from (%s) n '
      'cross join lateral json_to_record(n.before) as r (%s) where n.before is not null and n.after is null on conflict do nothing',
      v_table, coordination._list((p_entity).columns), coordination._values(v_table, 'r', (p_entity).columns), v_net,
      coordination._definitions(v_table, (p_entity).columns)) using p_event;
    get diagnostics v_more = row_count;
    v_done := v_done + v_more;
  end if;
  if v_done = v_wanted then return null; end if;
  if p_compensate then
    perform coordination._compensate(p_entity, p_event, v_net);
  end if;
  return format('%s of %s rows of %s were changed since', v_wanted - v_done, v_wanted, (p_entity).name);
end $$;

-- Rows that somebody changed since: of the columns that the event set, those that still hold its value go back;
-- the rest is left.
create or replace function coordination._compensate(p_entity coordination.entity, p_event bigint, p_net text) returns void
language plpgsql set search_path from current as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_keys   text[] := (p_entity).key_columns;
  v_others text[] := array(select c from unnest((p_entity).columns) c where c <> all (v_keys));
begin
  if v_others = '{}' then return; end if;
  execute format('update %1$s o set (%2$s) = row(%3$s) from (%4$s) n '
    'cross join lateral json_to_record(n.before) as r (%5$s) '
    'join %1$s m on %6$s cross join lateral (select %7$s as image) as now_ '
    'where n.before is not null and n.after is not null and %8$s and now_.image::text not in (n.after::text, n.before::text)',
    v_table, coordination._list(v_others),
    (select string_agg(format(
      'case when (n.after -> %1$L)::text is distinct from (n.before -> %1$L)::text '
      'and (now_.image -> %1$L)::text is not distinct from (n.after -> %1$L)::text then r.%2$s else o.%3$I end',
      c.name, quote_ident(c.name) || case when c.is_text then '::' || c.type else '' end, c.name), ', ')
     from coordination._columns(v_table) c where c.name = any (v_others)),
    p_net, coordination._definitions(v_table, v_others),
    coordination._list(v_keys, 'm.%1$I = n.%1$I', ' and '),
    coordination._image(v_table, 'm', (p_entity).columns),
    coordination._list(v_keys, 'o.%1$I = m.%1$I', ' and ')) using p_event;
end $$;

-- Writes the rows that an event was about, as they are now, into this transaction's event, so that Readers agree.
create or replace function coordination._tell_rows(p_entity coordination.entity, p_event bigint) returns void
language plpgsql set search_path from current as $$
declare
  v_table  regclass := coordination._table(p_entity);
  v_keys   text[] := (p_entity).key_columns;
  v_type   integer := coordination._type((p_entity).name, 'Update');
  v_event  bigint;
  v_from   integer;
  v_is_new boolean;
  v_count  integer;
begin
  select * into v_event, v_from, v_is_new from coordination._current_event();
  execute format('insert into coordination.payload (event_id, sequence, id, type_id, after, before) '
    'select $2, $3 + row_number() over (), nextval(''coordination.payload_id''), $4, %1$s, %1$s '
    'from %2$s o where exists (select from coordination.payload p '
    'join coordination."AppEventType" t on t."Id" = p.type_id and t."Entity" = $5 '
    'cross join lateral json_to_record(p.after) as n (%3$s) where p.event_id = $1 and %4$s)',
    coordination._image(v_table, 'o', (p_entity).columns), v_table, coordination._definitions(v_table, v_keys),
    coordination._list(v_keys, 'o.%1$I = n.%1$I', ' and '))
  using p_event, v_event, v_from, v_type, (p_entity).name;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform coordination._note_event(v_event, v_from + v_count, v_is_new, v_type, 'replicate');
  end if;
end $$;
