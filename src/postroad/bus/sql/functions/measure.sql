-- The upper bounds of the histograms of a kind: seconds, or messages and attempts.
create or replace function mbus._bounds(p_kind text) returns double precision[]
language sql immutable set search_path from current as $$
  select case when p_kind in ('attempts', 'batch')
    then '{1,2,3,4,5,7,10,15,20,30,50,75,100,150,200,300,500,750,1000,2000,5000,10000}'::double precision[]
    else '{0.001,0.0025,0.005,0.01,0.025,0.05,0.1,0.25,0.5,1,2.5,5,10,30,60,120,300,600,1800,3600,21600,86400}' end
$$;

-- The value below which a share of the values lies, interpolated in its bucket; null without values.  A value above the last bound
-- counts as that bound.
create or replace function mbus._quantile(p_kind text, p_counts bigint[], p_share double precision) returns double precision
language sql immutable set search_path from current as $$
  select coalesce(b.before, 0) + (coalesce(b.bound, b.before) - coalesce(b.before, 0)) * (p_share * b.amount - (b.reached - b.count)) / b.count
  from (
    select u.count, sum(u.count) over (order by u.place) as reached, sum(u.count) over () as amount, u.place,
           (mbus._bounds(p_kind))[u.place] as bound, (mbus._bounds(p_kind))[u.place - 1] as before
    from unnest(p_counts) with ordinality u(count, place)) b
  where b.count > 0 and b.reached >= p_share * b.amount order by b.place limit 1
$$;

-- Adds the measurements of a worker for a consumer's messages; workers call it every ten seconds.
--   kinds   wait: seconds from post, or the end of a delay, to the take; handled, failed: seconds of a handler; attempts: of
--           handled messages; batch: messages taken together
--   counts  for each kind 23 numbers: values up to each bound of mbus.measures, and greater ones;  totals: for each kind the sum of its
--           values
-- Errors: MB001, MB002, MB012 argument, MB013 role.
-- Locks: the consumer's rows, in order of the kinds.
create or replace function mbus.measure(qname text, cname text, kinds text[], counts bigint[], totals double precision[]) returns void
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._queue(qname);
  v_consumer constant mbus.consumer := mbus._consumer(v_queue, coalesce(cname, 'null'));
  v_hour     constant timestamptz := date_trunc('hour', mbus.now(), 'UTC');
  v_size     constant integer := cardinality(mbus._bounds('wait')) + 1;
begin
  perform mbus._check_consume(v_queue, cname);
  if not coalesce(kinds <@ '{wait,handled,failed,attempts,batch}' and array_ndims(kinds) = 1 and array_ndims(counts) = 1 and array_ndims(totals) = 1
                  and cardinality(counts) = v_size * cardinality(kinds) and cardinality(totals) = cardinality(kinds)
                  and 0 <= all (counts) and 1e15 > all (counts) and 0 <= all (totals) and 1e15 > all (totals)
                  and (select count(distinct k) = cardinality(kinds) from unnest(kinds) k), false) then
    raise exception 'invalid measures' using errcode = 'MB012', hint = format('Pass different kinds, %s counts and one total for each.', v_size);
  end if;
  if not exists (select from mbus.measure m where m.consumer_id = v_consumer.id and m.since = v_hour) then
    delete from mbus.measure m
    where m.consumer_id = v_consumer.id and m.since > '-infinity' and m.since < v_hour - interval '1 week';
  end if;
  insert into mbus.measure as m (consumer_id, kind, since, counts, total)
  select v_consumer.id, k.kind, s.since, $4[(k.place - 1) * v_size + 1 : k.place * v_size], $5[k.place]
  from unnest($3) with ordinality k(kind, place) cross join (values ('-infinity'::timestamptz), (v_hour)) s(since)
  order by k.kind, s.since
  on conflict (consumer_id, kind, since) do update
    set total = m.total + excluded.total,
        counts = array(select u.old + u.new from unnest(m.counts, excluded.counts) with ordinality u(old, new, place) order by u.place);
end $$;
