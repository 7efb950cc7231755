-- Undoes an event at the Writer.  Returns true when it is Canceled afterwards; false when it was already finished, or when rows were
-- changed since and the policy is to refuse: then it stays Canceling, with an alert, and nothing is restored.
create or replace function coordination._cancel(p_event bigint, p_reason text) returns boolean
language plpgsql set search_path from current as $$
declare
  v_event  coordination."AppEvent";
  v_policy text;
  v_left   text;
  v_again  boolean;
  v_reason text := p_reason;
  v_key    text := 'coordination.rollback.' || p_event;
begin
  select * into v_event from coordination."AppEvent" e where e."Id" = p_event for update;
  if not found or v_event."FinishedAt" is not null then return false; end if;
  v_again := v_event."AppEventStatusId" = coordination._status('Canceling');
  if not v_again then
    update coordination."AppEvent" e set "AppEventStatusId" = coordination._status('Canceling'), "Reason" = p_reason where e."Id" = p_event;
    insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceling}', 'writer', p_reason);
  else
    -- On a retry, the reason of the cancellation without the reason that prevented the last rollback.
    select h.note into v_reason from coordination.history h
    where h.event_id = p_event and h.states = '{Canceling}' and h.by = 'writer' order by h.at limit 1;
  end if;
  select min(e.on_conflict) into v_policy from coordination.entity e where e.name = any (v_event."Entities");
  -- 'compensate' is smaller than 'refuse': the event is compensated if one of its entities is.
  begin
    -- An open transaction must not block all decisions: the Coordinator will send this one again.
    if current_setting('lock_timeout') = '0' then
      perform set_config('lock_timeout', '500ms', true);
    end if;
    v_left := coordination._restore(v_event, v_policy = 'compensate');
  exception when lock_not_available or deadlock_detected then
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', v_reason, 'its rows are locked by another transaction')
    where e."Id" = p_event;
    if not v_again then perform coordination._report_rollback(p_event); end if;
    return false;
  end;
  if v_left is not null and v_policy is distinct from 'compensate' then
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', v_reason, v_left) where e."Id" = p_event;
    if not v_again then
      insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceling}', 'writer', v_left);
      perform coordination._report_rollback(p_event);
    end if;
    perform alerts.raise(v_key, 'coordination', 'error', format('event %s could not be rolled back', p_event),
      v_left || '. Nothing was restored. Mend the rows, then: postroad coordination retry ' || p_event);
    return false;
  end if;
  update coordination."AppEvent" e set "AppEventStatusId" = coordination._status('Canceled'), "FinishedAt" = coordination.now()
  where e."Id" = p_event;
  insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceled}', 'writer', v_left);
  perform alerts.clear(v_key);
  if v_again then perform coordination._report_rollback(p_event); end if;
  return true;
end $$;

-- Restores the before-image of rows that still equal the after-image, as a separate event that is sent to Readers.  Returns null, or the
-- reason that prevents it; then nothing is changed, unless p_compensate: then the columns that the event set and that were not changed
-- since are restored, and the current values of every such row are sent to Readers.
create or replace function coordination._restore(p_event coordination."AppEvent", p_compensate boolean) returns text
language plpgsql set search_path from current as $$
declare
  v_step   record;
  v_rows   record;
  v_left   text := '';
  v_before text := current_setting('coordination.event', true);
begin
  -- Separate from the other changes of this transaction: one event for each event that is undone.
  perform set_config('coordination.event', '', true), set_config('coordination.mode', 'replicate', true),
    set_config('coordination.cancels', p_event."Id"::text, true),
    set_config('coordination.correlation_id', p_event."CorrelationId"::text, true);
  begin
    set constraints all deferred;
    for v_step in select * from coordination._steps(p_event."Entities") loop
      if v_step.is_gone then
        v_left := concat_ws('; ', nullif(v_left, ''), format('the table of %s is gone', (v_step.entity).name));
        continue;
      end if;
      v_rows := coordination._restore_entity(v_step.entity, p_event."Id", v_step.step, p_compensate);
      if v_rows.done < v_rows.wanted then
        v_left := concat_ws('; ', nullif(v_left, ''), format('%s of %s rows of %s were changed since',
          v_rows.wanted - v_rows.done, v_rows.wanted, (v_step.entity).name));
      end if;
    end loop;
    set constraints all immediate;
    if v_left <> '' and not p_compensate then
      raise exception using errcode = 'PC099', message = v_left;
    end if;
  exception
    when sqlstate 'PC099' then null;
    when others then
      -- Also an error of a user's trigger: it must not stop the other decisions of the message.
      if coordination._is_transient(sqlstate) then raise; end if;
      v_left := sqlerrm;
      if p_compensate then perform coordination._restore_apart(p_event); end if;
  end;
  if v_left <> '' and p_compensate then
    perform coordination._leave_rows(e, p_event) from coordination.entity e where e.name = any (p_event."Entities");
  elsif v_left = '' and coordination.current_event() is null then
    -- There was nothing to restore, but Readers wait for the restoring event.
    perform coordination._send_rows(e, p_event."Id", coordination._net(e), null)
    from coordination.entity e where e.name = any (p_event."Entities");
  end if;
  perform set_config('coordination.event', coalesce(v_before, ''), true), set_config('coordination.mode', '', true),
    set_config('coordination.cancels', '', true), set_config('coordination.correlation_id', '', true);
  return nullif(v_left, '');
end $$;

-- Children are erased before their parents, parents written before their children.
create or replace function coordination._steps(
  p_entities text[], out step text, out entity coordination.entity, out is_gone boolean) returns setof record
language sql stable set search_path from current as $$
  select u.step, e, to_regclass(format('%I.%I', e.schema_name, e.table_name)) is null
  from unnest('{erase,write}'::text[]) with ordinality u (step, place)
  join coordination.entity e on e.name = any (p_entities)
  order by u.place, case u.step when 'erase' then -e.level else e.level end, e.name
$$;

-- Restores as much as possible if other rows depend on some of the rows: every other row is restored.  This takes several rounds, because a
-- row can be deleted once the rows that refer to it are deleted.  Rows in a cycle of references that others use stay.
create or replace function coordination._restore_apart(p_event coordination."AppEvent") returns void
language plpgsql set search_path from current as $$
declare
  v_step    record;
  v_columns text[];
  -- The first and last version of each range that has yet to be restored.
  v_ranges  bigint[];
  v_first   bigint;
  v_last    bigint;
  v_count   integer;
  v_done    integer;
begin
  for v_round in 1 .. 3 loop
    v_done := 0;
    for v_step in select * from coordination._steps(p_event."Entities") s where not s.is_gone loop
      -- Kept for all ranges, because computing it takes long for a large event.
      drop table if exists pg_temp.coordination_net;
      execute format('create temporary table coordination_net on commit drop as %s', coordination._net(v_step.entity)) using p_event."Id";
      create unique index on pg_temp.coordination_net ("coordination version");
      analyze pg_temp.coordination_net;
      v_columns := coordination._columns_of(v_step.entity, p_event."Id");
      v_ranges := array[0, 9223372036854775807];
      while v_ranges <> '{}' loop
        select min(q."coordination version"), max(q."coordination version") into v_first, v_last from pg_temp.coordination_net q
        where q."coordination version" between v_ranges[1] and v_ranges[2];
        v_ranges := v_ranges[3:];
        continue when v_first is null;
        begin
          set constraints all deferred;
          v_count := (coordination._restore_entity(v_step.entity, p_event."Id", v_step.step, true, v_columns, format(
            'select * from pg_temp.coordination_net q where q."coordination version" between %s and %s', v_first, v_last))).done;
          set constraints all immediate;
          v_done := v_done + v_count;
        exception when others then
          if coordination._is_transient(sqlstate) then raise; end if;
          -- Each half separately, later rows first, because they may refer to earlier ones.
          if v_first < v_last then
            v_ranges := array[(v_first + v_last) / 2 + 1, v_last, v_first, (v_first + v_last) / 2] || v_ranges;
          end if;
        end;
      end loop;
    end loop;
    exit when v_done = 0;
  end loop;
end $$;
