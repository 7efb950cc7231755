-- Answers, in the answerer's transaction.  request is the headers of the message that is answered.  Returns the
-- iid of the answer, or null when it was dropped: the one who asked is gone, or its time is over.
-- Whoever knows the name of a temporary queue may answer to it; a request cannot make its handler post elsewhere.
-- Errors: MB012 when the message asks for no answer.

create or replace function mbus.reply(
  request hstore, data text, headers hstore default null, properties hstore default null) returns text
language plpgsql security definer set search_path from current as $$
begin
  return (mbus._reply(array[request], array[mbus._answer(request, headers, properties, null, null, data, null)]))[1];
end $$;

create or replace function mbus.reply(
  request hstore, data hstore, headers hstore default null, properties hstore default null) returns text
language plpgsql security definer set search_path from current as $$
begin
  return (mbus._reply(array[request], array[mbus._answer(request, headers, properties, data, null, null, null)]))[1];
end $$;

create or replace function mbus.reply(
  request hstore, data jsonb, headers hstore default null, properties hstore default null) returns text
language plpgsql security definer set search_path from current as $$
begin
  return (mbus._reply(array[request], array[mbus._answer(request, headers, properties, null, data, null, null)]))[1];
end $$;

create or replace function mbus.reply(
  request hstore, data bytea, headers hstore default null, properties hstore default null) returns text
language plpgsql security definer set search_path from current as $$
begin
  return (mbus._reply(array[request], array[mbus._answer(request, headers, properties, null, null, null, data)]))[1];
end $$;

-- Many answers at once, one per request; null in the result where one was dropped.  headers and properties are for all.
-- A function per payload, so that a client need not name the type.
create or replace function mbus.replyn_text(
  requests hstore[], data text[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._check_answers(cardinality(requests), cardinality(data));
  return mbus._reply(requests, array(
    select mbus._answer(r.request, headers, properties, null, null, r.data, null)
    from unnest(requests, data) with ordinality r(request, data, place) order by r.place));
end $$;

-- As mbus.replyn_text, for requests to queues that carry hstore.
create or replace function mbus.replyn_hstore(
  requests hstore[], data hstore[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._check_answers(cardinality(requests), cardinality(data));
  return mbus._reply(requests, array(
    select mbus._answer(r.request, headers, properties, r.data, null, null, null)
    from unnest(requests, data) with ordinality r(request, data, place) order by r.place));
end $$;

-- As mbus.replyn_text, for requests to queues that carry jsonb.
create or replace function mbus.replyn_jsonb(
  requests hstore[], data jsonb[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._check_answers(cardinality(requests), cardinality(data));
  return mbus._reply(requests, array(
    select mbus._answer(r.request, headers, properties, null, r.data, null, null)
    from unnest(requests, data) with ordinality r(request, data, place) order by r.place));
end $$;

-- As mbus.replyn_text, for requests to queues that carry bytea.
create or replace function mbus.replyn_bytea(
  requests hstore[], data bytea[], headers hstore default null, properties hstore default null) returns text[]
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._check_answers(cardinality(requests), cardinality(data));
  return mbus._reply(requests, array(
    select mbus._answer(r.request, headers, properties, null, null, null, r.data)
    from unnest(requests, data) with ordinality r(request, data, place) order by r.place));
end $$;

create or replace function mbus._check_answers(p_requests integer, p_answers integer) returns void
language plpgsql immutable set search_path from current as $$
begin
  if p_requests is distinct from p_answers then
    raise exception '% answers for % requests', coalesce(p_answers, 0), coalesce(p_requests, 0)
      using errcode = 'MB012', hint = 'Give one answer per request.';
  end if;
end $$;

-- The answer as a parcel.  Reading the deadline refuses a header that is no time.
create or replace function mbus._answer(
  p_request hstore, p_headers hstore, p_properties hstore,
  p_hstore hstore, p_jsonb jsonb, p_text text, p_bytea bytea) returns mbus.parcel
language plpgsql stable set search_path from current as $$
begin
  if not mbus._is_temporary(p_request -> 'reply_to') is true then
    raise exception 'the message asks for no answer'
      using errcode = 'MB012', hint = 'Give the headers of a message that was posted with mbus.request.';
  end if;
  perform mbus._check_time('header reply_by', (p_request -> 'reply_by')::timestamptz);
  return row(null, mbus.now(), (p_request -> 'reply_by')::timestamptz,
    coalesce(p_headers, '') || hstore('correlation', p_request -> 'correlation'), p_properties, null, null,
    p_hstore, p_jsonb, p_text, p_bytea)::mbus.parcel;
exception when datetime_field_overflow or invalid_datetime_format then
  raise exception 'invalid header reply_by: "%"', p_request -> 'reply_by'
    using errcode = 'MB012', hint = 'Give the headers of a message that was posted with mbus.request.';
end $$;

-- Sends those for which somebody still waits.
create or replace function mbus._reply(p_requests hstore[], p_answers mbus.parcel[]) returns text[]
language plpgsql volatile set search_path from current as $$
declare
  v_now     constant timestamptz := mbus.now();
  v_names   constant text[] := array(select r -> 'reply_to' from unnest(p_requests) with ordinality u(r, place) order by place);
  v_sent    boolean[];
  v_ids     bigint[];
begin
  -- A queue for answers takes any payload, another one its own only.
  v_sent := array(
    with waiting as materialized (
      select q.name, q.payload from (select distinct name from unnest(v_names) name) n
      cross join lateral mbus._temporary_queue(n.name) q where q.name is not null)
    select w.name is not null and (m.expires is null or m.expires > v_now)
       and case w.payload when 'hstore' then m.h is not null when 'jsonb' then m.j is not null
                          when 'text' then m.t is not null when 'bytea' then m.b is not null else true end
    from unnest(v_names, p_answers) with ordinality
      m(name, number, added, expires, headers, properties, trail, recipients, h, j, t, b, place)
    left join waiting w on w.name = m.name
    order by m.place);
  v_ids := mbus._temporary_put(
    array(select v_names[i] from generate_subscripts(v_names, 1) i where v_sent[i] order by i),
    array(select p_answers[i] from generate_subscripts(v_names, 1) i where v_sent[i] order by i));
  return array(
    select case when s.sent then mbus._iid(v_names[s.place], v_ids[s.nth]) end
    from (select sent, place, count(*) filter (where sent) over (order by place) as nth
          from unnest(v_sent) with ordinality u(sent, place)) s
    order by s.place);
end $$;
