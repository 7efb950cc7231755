-- Writes into {table} the rows whose last payload is an insert or an update, whether the row exists or not.
create or replace function coordination.{write}(p_page coordination.page, p_events bigint[]) returns void
language plpgsql set search_path from current as $write$
begin
  insert into {table} ({columns}) overriding system value
  select {values} from (
    select distinct on ({record_keys}) x.operation as "coordination operation", r.*
    from coordination._changes(p_page, p_events) x
    cross join lateral json_to_recordset(x.afters) as r ({definitions})
    where x.entity = {entity}
    order by {record_keys}, x.event_position desc, x.sequence desc) g
  where g."coordination operation" <> 'D'
  on conflict ({keys}) {action};
end $write$
