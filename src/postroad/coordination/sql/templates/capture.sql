-- Writes what a statement changed in {table} into the event of its transaction.
create or replace function coordination.{function}() returns trigger
language plpgsql security definer set search_path from current {settings} as $capture$
declare
  v_event    bigint;
  v_from     integer;
  v_is_new   boolean;
  v_count    integer;
  v_type     integer;
begin
  select * into v_event, v_from, v_is_new from coordination._current_event();
  if tg_op = 'INSERT' then
    v_type := {insert};
    insert into coordination.payload (event_id, sequence, id, type_id, after)
    select v_event, v_from + row_number() over (), nextval('coordination.payload_id'), {insert}, {new_image}
    from new_rows n;
  elsif tg_op = 'UPDATE' then
    v_type := {update};
    -- A changed key leaves a row without its pair on either side: one row gone, another come.
    insert into coordination.payload (event_id, sequence, id, type_id, after, before)
    select v_event, v_from + row_number() over (), nextval('coordination.payload_id'),
      case when s.is_gone then {delete} when s.is_come then {insert} else {update} end,
      case when s.is_gone then s.old_key else s.new_image end, case when not s.is_come then s.old_image end
    from (
      select n.{first_key} is null as is_gone, o.{first_key} is null as is_come,
        {old_key} as old_key, {new_image} as new_image, {old_image} as old_image
      from old_rows o full join new_rows n on {same_key}) s
    where s.is_gone or s.is_come or s.new_image::text <> s.old_image::text;
  else
    v_type := {delete};
    if tg_op = 'DELETE' then
      insert into coordination.payload (event_id, sequence, id, type_id, after, before)
      select v_event, v_from + row_number() over (), nextval('coordination.payload_id'), {delete}, {old_key}, {old_image}
      from old_rows o;
    else
      insert into coordination.payload (event_id, sequence, id, type_id, after, before)
      select v_event, v_from + row_number() over (), nextval('coordination.payload_id'), {delete}, {old_key}, {old_image}
      from {table} o;
    end if;
  end if;
  get diagnostics v_count = row_count;
  if v_count > 0 then
    perform coordination._note_event(v_event, v_from + v_count, v_is_new, v_type, {mode});
  end if;
  return null;
end $capture$
