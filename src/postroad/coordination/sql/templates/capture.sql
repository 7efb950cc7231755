-- Writes the rows that a statement changed in {table} into its transaction's event, up to a thousand rows or about four million bytes per
-- row of payload.
create or replace function coordination.{function}() returns trigger
language plpgsql security definer set search_path from current {settings} as $capture$
declare
  v_current record := coordination._current_event();
  v_count   integer;
  v_type    integer := case tg_op when 'INSERT' then {insert} when 'UPDATE' then {update} else {delete} end;
begin
  if tg_op = 'TRUNCATE' then
    {truncated};
  elsif tg_op = 'DELETE' then
    {deleted};
  elsif (tg_op = 'UPDATE' or not v_current.v_is_new) and coordination._changes_again(tg_relid) then
    -- Reads the current rows: the change that followed was already captured, so an inserted row is not the first of its event.
    if tg_op = 'INSERT' then
      {inserted_again};
    else
      {updated_again};
    end if;
  elsif tg_op = 'INSERT' then
    {inserted};
  else
    {updated};
  end if;
  if v_count > 0 then
    perform coordination._note_event(v_current.v_event, v_current.v_from + v_count, v_current.v_is_new, v_type, {mode});
  end if;
  return null;
end $capture$
