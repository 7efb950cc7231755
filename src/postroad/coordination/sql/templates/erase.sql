-- Erases from {table} the rows whose last payload is a delete.
create or replace function coordination.{erase}(p_rows jsonb, p_events bigint[]) returns void
language plpgsql set search_path from current as $erase$
begin
  if p_rows is not null then
    delete from {table} t using (
      select distinct on ({record_keys}) x.o as "coordination operation", r.*
      from jsonb_to_recordset(p_rows) x (p bigint, s integer, n text, o text, c jsonb)
      cross join lateral jsonb_to_record(x.c) as r ({key_definitions})
      where x.n = {entity}
      order by {record_keys}, x.p desc, x.s desc) g
    where g."coordination operation" = 'D' and {same_key};
  else
    delete from {table} t using (
      select distinct on ({record_keys}) y."Operation" as "coordination operation", r.*
      from coordination.payload x
      join coordination.staging s on s.event_id = x.event_id
      join coordination."AppEventType" y on y."Id" = x.type_id and y."Entity" = {entity}
      cross join lateral json_to_record(x.after) as r ({key_definitions})
      where x.event_id = any (p_events)
      order by {record_keys}, s.position desc, x.sequence desc) g
    where g."coordination operation" = 'Delete' and {same_key};
  end if;
end $erase$
