-- Returns a page for a Reader: at most p_limit payloads after its cursor, with the next cursor.  The images are in `afters`, those
-- before updates in `befores`, a JSON array for each element of the page's payloads.
-- A page contains whole events as long as they fit; a longer event is sent alone, page by page, so N payloads are ceil(N / limit) pages.
-- Cancelled events have no payloads.  Read-only.  Raises PC010, PC011 for a limit below 1,
-- PC014 for a version other than 2, PC015 when events after the cursor have been removed.
create or replace function coordination.pull(
  p_position bigint, p_sequence integer default 0, p_limit integer default 10, p_version integer default 2,
  out page json, out events integer, out payloads integer, out more boolean, out next_position bigint, out next_sequence integer,
  out afters text[], out befores text[])
language plpgsql stable security definer set plan_cache_mode = force_generic_plan set search_path from current as $$
declare
  v_upto integer := p_sequence + p_limit;
begin
  perform coordination._require('writer');
  perform coordination._refuse_if(p_version <> 2, 'PC014', format('pages of version %s', p_version), 'upgrade the Reader');
  perform coordination._refuse_if(p_limit < 1, 'PC011', format('a page of %s payloads', p_limit), 'ask for 1 at least');
  perform coordination._refuse_if(p_position < (select a.purged_to from coordination.acknowledged a),
    'PC015', format('events after position %s are no longer kept', p_position), 'take a snapshot: postroad coordination snapshot');
  with near as materialized (
    -- Each event that is not cancelled has a payload, so twice the page size is enough, plus one event to detect that there is more.
    select e.*, case when e."AppEventStatusId" = coordination._status('Canceled') then 0 else e."PayloadCount" end as size
    from coordination."AppEvent" e
    where e."Position" > p_position
    order by e."Position" limit p_limit * 2 + 1),
  summed as (
    select n.*, sum(n.size) over (order by n."Position") as upto, row_number() over (order by n."Position") as place
    from near n),
  chosen as materialized (
    select s.* from summed s
    where case when p_sequence > 0 then s.place = 1
      else s.place <= p_limit * 2 and (s.upto <= p_limit or s.place = 1) end),
  rows as materialized (
    select c."Position", k.sequence, k.count, k.after::text as after, case t."Operation" when 'Update' then k.before::text end as before,
      json_build_object('e', c."Id", 'p', c."Position", 's', k.sequence, 'v', k.id, 'n', t."Entity", 'o', left(t."Operation", 1),
        'k', k.count, 'u', p.changed) as row
    from chosen c
    -- Read by index for each event, however many payloads are kept.
    cross join lateral (
      select * from coordination.payload p
      where p.event_id = c."Id" and c.size > 0 and p.sequence > p_sequence - 1000 and p.sequence <= v_upto offset 0) p
    join coordination."AppEventType" t on t."Id" = p.type_id
    cross join lateral (select p.count > 0 and p.sequence > p_sequence and p.sequence + p.count <= v_upto + 1) f (fits)
    cross join lateral (
      select p.sequence, p.id, p.count, p.after, p.before where f.fits
      union all
      select min(u.sequence), min(u.id), count(*), json_agg(u.after), case when p.before is not null then json_agg(u.before) end
      from coordination._unpack(p) u where f.fits is not true and u.sequence > p_sequence and u.sequence <= v_upto
      having count(*) > 0) k)
  select json_build_object('version', p_version,
    'from', json_build_object('position', p_position, 'sequence', p_sequence),
    'events', coalesce((select json_agg(json_build_object('id', c."Id", 'position', c."Position", 'count', c.size, 'mode', c."Mode",
        'type', (select t."Name" from coordination."AppEventType" t where t."Id" = c."AppEventTypeId"),
        'entities', c."Entities", 'date', c."Date", 'correlation_id', c."CorrelationId", 'cancels', c."Cancels",
        'traceparent', c."TraceParent",
        'outcome', case when c."AppEventStatusId" = coordination._status('Canceled') then 'cancel'
                        when c."Mode" = 'two-phase' and c."AppEventStatusId" = coordination._status('Committed') then 'commit' end)
        order by c."Position") from chosen c), '[]'),
    'payloads', coalesce((select json_agg(r.row order by r."Position", r.sequence) from rows r), '[]'),
    'columns', (select json_object_agg(e.name, e.columns) from coordination.entity e where e.role in ('tracked', 'untracked'))),
    (select count(*) from chosen), (select coalesce(sum(r.count), 0) from rows r),
    exists (select from near n where n."Position" > (select max(c."Position") from chosen c))
      or exists (select from chosen c where c.size > v_upto),
    coalesce((select max(c."Position") from chosen c where c.size <= v_upto), p_position),
    coalesce((select v_upto from chosen c where c.size > v_upto), 0),
    (select array_agg(r.after order by r."Position", r.sequence) from rows r),
    (select array_agg(r.before order by r."Position", r.sequence) from rows r)
  into page, events, payloads, more, next_position, next_sequence, afters, befores;
end $$;

-- The columns in which two images differ.
create or replace function coordination._changed(p_before json, p_after json) returns text[]
language sql immutable set search_path from current as $$
  select array(select a.key from json_each_text(p_after) a where a.value is distinct from (p_before ->> a.key))
$$;
