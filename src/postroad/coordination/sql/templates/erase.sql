-- Deletes from {table} the rows whose last payload is a delete.
create or replace function coordination.{erase}(p_page coordination.page, p_events bigint[]) returns void
language plpgsql set search_path from current as $erase$
begin
  delete from {table} t using (
    select distinct on ({record_keys}) x.operation as "coordination operation", r.*
    from coordination._changes(p_page, p_events) x
    cross join lateral json_to_recordset(x.afters) as r ({key_definitions})
    where x.entity = {entity}
    order by {record_keys}, x.event_position desc, x.sequence desc) g
  where g."coordination operation" = 'D' and {same_key};
end $erase$
