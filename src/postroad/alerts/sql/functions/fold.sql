-- Folds reports into episodes and returns the number of reports.  Lock: the advisory lock of folding, because two
-- sessions that split a raise from its clear could apply them in the wrong order; then rows of alerts.alert.
create or replace function alerts.fold() returns bigint
language plpgsql security definer set search_path from current as $$
declare
  v_island record;
  v_count  bigint := 0;
begin
  if not exists (select from alerts.report) then
    return 0;
  end if;
  perform pg_advisory_xact_lock(hashtextextended('alerts.fold', 0));
  for v_island in
    with numbered as (
      select g.*, row_number() over (partition by g.key order by g.id)
                - row_number() over (partition by g.key, g.is_raise order by g.id) as island
      from alerts.take_reports(10000) g)
    -- Consecutive reports of one key and kind are applied as one step.
    select n.key, n.is_raise, count(*) as count, min(n.at) as first_at, max(n.at) as last_at,
           (array_agg(n.room order by n.id desc))[1] as room, (array_agg(n.title order by n.id desc))[1] as title,
           (array_agg(n.body order by n.id desc))[1] as body,
           (array_agg(n.severity order by alerts._rank(coalesce(n.severity, 'info')) desc))[1] as severity
    from numbered n group by n.key, n.is_raise, n.island order by min(n.id)
  loop
    v_count := v_count + v_island.count;
    if v_island.is_raise then
      insert into alerts.alert as a (key, room, severity, title, body, count, raised_at, last_at)
      values (v_island.key, v_island.room, v_island.severity, v_island.title, v_island.body, v_island.count,
              v_island.first_at, v_island.last_at)
      on conflict (key) where cleared_at is null do update
      set count = a.count + excluded.count, last_at = greatest(a.last_at, excluded.last_at),
          room = excluded.room, title = excluded.title, body = excluded.body,
          -- An episode is as serious as its worst report.
          severity = case when alerts._rank(excluded.severity) > alerts._rank(a.severity)
                     then excluded.severity else a.severity end;
    else
      update alerts.alert a set cleared_at = greatest(v_island.first_at, a.raised_at)
      where a.key = v_island.key and a.cleared_at is null;
    end if;
  end loop;
  return v_count;
end $$;

-- Removes up to p_limit reports for a relay and returns them in order; none while another process folds or takes reports.
create or replace function alerts.take_reports(p_limit integer) returns setof alerts.report
language plpgsql volatile set search_path from current as $$
begin
  if pg_try_advisory_xact_lock(hashtextextended('alerts.fold', 0)) then
    return query
    with taken as (
      delete from alerts.report r
      where r.id = any (array(select n.id from alerts.report n order by n.id limit p_limit)) returning r.*)
    select t.* from taken t order by t.id;
  end if;
end $$;
