-- Writes what a statement changed in {table} into the event of its transaction.  A row of payload has at most a thousand changed rows
-- and about four million bytes of images.
create or replace function coordination.{function}() returns trigger
language plpgsql security definer set search_path from current {settings} as $capture$
declare
  v_current  record := coordination._current_event();
  v_count    integer;
  v_type     integer;
begin
  if tg_op = 'INSERT' then
    v_type := {insert};
    with packed as (
      insert into coordination.payload (event_id, sequence, id, type_id, count, after)
      select v_current.v_event, v_current.v_from + min(s.place), nextval('coordination.payload_id'), {insert}, count(*), json_agg(s.after)
      from (
        select c.after, row_number() over w as place, sum(octet_length(c.after::text)) over w as bytes
        from (select {new_image} as after from new_rows n offset 0) c window w as (rows unbounded preceding)) s
      group by (s.place - 1) / 1000, s.bytes / 4000000 returning count)
    select sum(p.count) into v_count from packed p;
  elsif tg_op = 'UPDATE' then
    v_type := {update};
    -- A changed key leaves a row without its pair on either side: one row gone, another come.
    with packed as (
      insert into coordination.payload (event_id, sequence, id, type_id, count, after, before)
      select v_current.v_event, v_current.v_from + min(s.place), nextval('coordination.payload_id'), s.type_id, count(*), json_agg(s.after),
        case when s.type_id <> {insert} then json_agg(s.before) end
      from (
        select c.*, row_number() over w as place, sum(octet_length(c.after::text) + octet_length(c.before::text)) over w as bytes
        from (
          select case when n.{first_key} is null then {delete} when o.{first_key} is null then {insert} else {update} end as type_id,
            case when n.{first_key} is null then {old_key} else {new_image} end as after, {old_image} as before
          -- Two actions of foreign keys may change a row twice in one statement: the first old and the last new version count.
          from (select distinct on ({keys}) * from (select *, row_number() over () as "coordination place" from old_rows) r
                order by {keys}, "coordination place") o
          full join (select distinct on ({keys}) * from (select *, row_number() over () as "coordination place" from new_rows) r
                     order by {keys}, "coordination place" desc) n on {same_key} offset 0) c
        where c.type_id <> {update} or c.after::text <> c.before::text
        window w as (order by c.type_id rows unbounded preceding)) s
      group by s.type_id, (s.place - 1) / 1000, s.bytes / 4000000 returning count)
    select sum(p.count) into v_count from packed p;
  else
    v_type := {delete};
    if tg_op = 'DELETE' then
      with packed as (
        insert into coordination.payload (event_id, sequence, id, type_id, count, after, before)
        select v_current.v_event, v_current.v_from + min(s.place), nextval('coordination.payload_id'), {delete}, count(*), json_agg(s.after), json_agg(s.before)
        from (
          select c.*, row_number() over w as place, sum(octet_length(c.before::text)) over w as bytes
          from (select {old_key} as after, {old_image} as before from old_rows o offset 0) c window w as (rows unbounded preceding)) s
        group by (s.place - 1) / 1000, s.bytes / 4000000 returning count)
      select sum(p.count) into v_count from packed p;
    else
      with packed as (
        insert into coordination.payload (event_id, sequence, id, type_id, count, after, before)
        select v_current.v_event, v_current.v_from + min(s.place), nextval('coordination.payload_id'), {delete}, count(*), json_agg(s.after), json_agg(s.before)
        from (
          select c.*, row_number() over w as place, sum(octet_length(c.before::text)) over w as bytes
          from (select {old_key} as after, {old_image} as before from {table} o offset 0) c window w as (rows unbounded preceding)) s
        group by (s.place - 1) / 1000, s.bytes / 4000000 returning count)
      select sum(p.count) into v_count from packed p;
    end if;
  end if;
  if v_count > 0 then
    perform coordination._note_event(v_current.v_event, v_current.v_from + v_count, v_current.v_is_new, v_type, {mode});
  end if;
  return null;
end $capture$
