-- The answer as a parcel without data.  Reading the deadline refuses a header that is not a time.
create or replace function mbus._answer(p_request hstore, p_headers hstore, p_properties hstore) returns mbus.parcel
language plpgsql stable set search_path from current as $$
begin
  if not mbus._is_temporary(p_request -> 'reply_to') is true then
    raise exception 'the message is not a request'
      using errcode = 'MB012', hint = 'Pass the headers of a message that was posted with mbus.request.';
  end if;
  perform mbus._check_time('header reply_by', (p_request -> 'reply_by')::timestamptz);
  return row(null, mbus.now(), (p_request -> 'reply_by')::timestamptz,
    coalesce(p_headers, '') || hstore('correlation', p_request -> 'correlation'), p_properties, null, null,
    null, null, null, null)::mbus.parcel;
exception when datetime_field_overflow or invalid_datetime_format then
  raise exception 'invalid header reply_by: "%"', p_request -> 'reply_by'
    using errcode = 'MB012', hint = 'Pass the headers of a message that was posted with mbus.request.';
end $$;

-- Sends answers to requesters that still wait.
create or replace function mbus._reply(p_requests hstore[], p_data anyarray, p_headers hstore, p_properties hstore) returns text[]
language plpgsql volatile set search_path from current as $$
declare
  v_now     constant timestamptz := mbus.now();
  v_names   constant text[] := array(select r -> 'reply_to' from unnest(p_requests) with ordinality u(r, place) order by place);
  v_answers mbus.parcel[];
  v_sent    boolean[];
  v_ids     bigint[];
begin
  if cardinality(p_requests) is distinct from cardinality(p_data) then
    raise exception '% answers for % requests', coalesce(cardinality(p_data), 0), coalesce(cardinality(p_requests), 0)
      using errcode = 'MB012', hint = 'Pass one answer per request.';
  end if;
  v_answers := array(
    select mbus._load(mbus._answer(r.request, p_headers, p_properties), r.data)
    from unnest(p_requests, p_data) with ordinality r(request, data, place) order by r.place);
  -- A queue for answers accepts any payload, other queues only their own.
  v_sent := array(
    with waiting as materialized (
      select q.name, q.payload from (select distinct name from unnest(v_names) name) n
      cross join lateral mbus._temporary_queue(n.name) q where q.name is not null)
    select w.name is not null and (m.expires is null or m.expires > v_now)
       and case w.payload when 'hstore' then m.h is not null when 'jsonb' then m.j is not null
                          when 'text' then m.t is not null when 'bytea' then m.b is not null else true end
    from unnest(v_names, v_answers) with ordinality
      m(name, number, added, expires, headers, properties, trail, recipients, h, j, t, b, place)
    left join waiting w on w.name = m.name
    order by m.place);
  v_ids := mbus._temporary_put(
    array(select v_names[i] from generate_subscripts(v_names, 1) i where v_sent[i] order by i),
    array(select v_answers[i] from generate_subscripts(v_names, 1) i where v_sent[i] order by i));
  return array(
    select case when s.sent then mbus._iid(v_names[s.place], v_ids[s.nth]) end
    from (select sent, place, count(*) filter (where sent) over (order by place) as nth
          from unnest(v_sent) with ordinality u(sent, place)) s
    order by s.place);
end $$;
