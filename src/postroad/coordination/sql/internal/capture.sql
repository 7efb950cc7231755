-- The event of this transaction: its number, the last number of its payloads, whether it has a row yet.
-- They are kept in a setting of the transaction, which a rollback to a savepoint restores like the rows.
create or replace function coordination._current_event(out v_event bigint, out v_from integer, out v_is_new boolean)
language plpgsql set search_path from current as $$
declare
  v_setting text := current_setting('coordination.event', true);
begin
  if v_setting is null or v_setting = '' then
    -- The transaction gets its id before its event gets a number: coordination.publish() relies on it.
    v_is_new := pg_current_xact_id() is not null;
    v_event := nextval('coordination."AppEvent_Id_seq"');
    v_from := 0;
  else
    v_event := split_part(v_setting, ' ', 1)::bigint;
    v_from := split_part(v_setting, ' ', 2)::integer;
    v_is_new := false;
  end if;
end $$;

-- Writes the event's row with its first payloads; a later entity may make it two-phase.
create or replace function coordination._note_event(
  p_event bigint, p_sequence integer, p_is_new boolean, p_type integer, p_mode text) returns void
language plpgsql set search_path from current as $$
declare
  v_asked text := nullif(current_setting('coordination.mode', true), '');
begin
  if p_is_new then
    insert into coordination."AppEvent" ("Id", "CorrelationId", "AppEventTypeId", "Mode", "Cancels", "TraceParent")
    values (p_event,
      coalesce(nullif(current_setting('coordination.correlation_id', true), '')::uuid, gen_random_uuid()),
      p_type, coalesce(v_asked, p_mode), nullif(current_setting('coordination.cancels', true), '')::bigint,
      nullif(current_setting('postroad.traceparent', true), ''));
  elsif v_asked is null and p_mode = 'two-phase' then
    update coordination."AppEvent" e set "Mode" = p_mode where e."Id" = p_event and e."Mode" <> p_mode;
  end if;
  perform set_config('coordination.event', p_event || ' ' || p_sequence, true);
end $$;

-- Whether rows that a statement changes in this table may be changed again before they are captured: by a foreign key's action, or by a
-- trigger.
create or replace function coordination._changes_again(p_table oid) returns boolean
language plpgsql stable set search_path from current as $$
begin
  return exists (
      select from pg_constraint f where f.conrelid = p_table and f.contype = 'f' and (f.confdeltype in ('c', 'n', 'd') or f.confupdtype in ('c', 'n', 'd')))
    -- In the type of a trigger, 2 means before and 64 instead of.
    or exists (select from pg_trigger t where t.tgrelid = p_table and not t.tgisinternal and t.tgtype & 66 = 0 and t.tgname !~ '^coordination_');
end $$;
