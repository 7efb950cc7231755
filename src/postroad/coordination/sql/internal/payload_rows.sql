-- One row for each changed row of a row of payload.  Without a search_path, so that the planner inlines it.
create or replace function coordination._unpack(p coordination.payload)
returns table (event_id bigint, sequence integer, id bigint, type_id integer, after json, before json, changed text[])
language sql stable as $$
  select (p).event_id, (p).sequence + r.place::integer - 1, (p).id + r.place - 1, (p).type_id, r.after, r.before, (p).changed
  from rows from (
    json_array_elements(case when (p).count is null then json_build_array((p).after) else (p).after end),
    json_array_elements(case when (p).count is null and (p).before is not null then json_build_array((p).before) else (p).before end))
    with ordinality r (after, before, place)
$$;

create or replace view coordination.payload_row as
select r.* from coordination.payload p cross join lateral coordination._unpack(p) r;
