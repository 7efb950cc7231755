-- Undoes an event at the Writer.  True when it is Canceled afterwards; false when it was finished before, or when
-- rows were changed since and the policy is to refuse: then it stays Canceling, with an alert, and nothing was restored.
create or replace function coordination._cancel(p_event bigint, p_reason text) returns boolean
language plpgsql set search_path from current as $$
declare
  v_event  coordination."AppEvent";
  v_policy text;
  v_left   text;
  v_reason text := p_reason;
  v_key    text := 'coordination.rollback.' || p_event;
begin
  select * into v_event from coordination."AppEvent" e where e."Id" = p_event for update;
  if not found or v_event."FinishedAt" is not null then return false; end if;
  if v_event."AppEventStatusId" <> 10 then
    update coordination."AppEvent" e set "AppEventStatusId" = 10, "Reason" = p_reason where e."Id" = p_event;
    insert into coordination.history (event_id, states, by, note) values (p_event, '{Canceling}', 'writer', p_reason);
  else
    -- Tried again: why it was cancelled is one thing, why it could not be undone the last time another.
    select h.note into v_reason from coordination.history h
    where h.event_id = p_event and h.states = '{Canceling}' and h.by = 'writer' order by h.at limit 1;
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
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', v_reason, 'its rows are locked by another transaction')
    where e."Id" = p_event;
    return false;
  end;
  if v_left is not null and v_policy is distinct from 'compensate' then
    update coordination."AppEvent" e set "Reason" = concat_ws('; ', v_reason, v_left) where e."Id" = p_event;
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
      perform coordination._leave_rows(e, p_event) from coordination.entity e where e.name = any (p_event."Entities");
    end if;
  exception
    when sqlstate 'PC099' then v_left := sqlerrm;
    when integrity_constraint_violation then
      v_left := sqlerrm;
      if p_compensate then
        perform coordination._leave_rows(e, p_event) from coordination.entity e where e.name = any (p_event."Entities");
      end if;
  end;
  perform set_config('coordination.event', coalesce(v_before, ''), true), set_config('coordination.mode', '', true),
    set_config('coordination.cancels', '', true), set_config('coordination.correlation_id', '', true);
  return v_left;
end $$;

