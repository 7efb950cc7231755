-- When a schedule runs: cron expressions and intervals.

-- The values that a field of a cron expression allows.  Sunday is 0 or 7.  Errors: MB012.
create or replace function mbus._cron_field(p_field text, p_low integer, p_high integer, p_names text[] default '{}') returns integer[]
language plpgsql immutable set search_path from current as $$
declare
  v_part   text;
  v_match  text[];
  v_from   integer;
  v_to     integer;
  v_step   integer;
  v_values integer[] := '{}';
begin
  foreach v_part in array string_to_array(lower(p_field), ',') loop
    v_match := regexp_match(v_part, '^(?:\*|([a-z]{3}|[0-9]{1,2})(?:-([a-z]{3}|[0-9]{1,2}))?)(?:/([0-9]{1,2}))?$');
    v_from := coalesce(array_position(p_names, v_match[1]) - 1 + p_low, substring(v_match[1] from '^[0-9]+$')::integer,
                       case when v_match[1] is null then p_low end);
    v_to := coalesce(array_position(p_names, v_match[2]) - 1 + p_low, substring(v_match[2] from '^[0-9]+$')::integer,
                     case when v_match[2] is not null then null
                          when v_match[1] is null or v_match[3] is not null then p_high else v_from end);
    v_step := coalesce(v_match[3]::integer, 1);
    if p_high = 6 and v_to = 0 and v_from > 0 then v_to := 7; end if;
    if v_match is null or v_step = 0 or v_from is null or v_to is null or v_from > v_to or v_from < p_low
       or v_to > p_high + (p_high = 6)::integer then
      raise exception 'invalid field of a cron expression: "%"', p_field
        using errcode = 'MB012', hint = format('Use *, numbers from %s to %s, ranges, steps and lists of them.', p_low, p_high);
    end if;
    v_values := v_values || array(select case when p_high = 6 then v % 7 else v end from generate_series(v_from, v_to, v_step) v);
  end loop;
  return array(select distinct v from unnest(v_values) v order by v);
end $$;

-- True for a day on which a cron expression runs.  If both the day of the month and the weekday are restricted, one of them is enough.
create or replace function mbus._cron_day(p_day date, p_days integer[], p_months integer[], p_weekdays integer[]) returns boolean
language sql immutable set search_path from current as $$
  select extract(month from p_day) = any (p_months)
     and case when cardinality(p_days) < 31 and cardinality(p_weekdays) < 7
              then extract(day from p_day) = any (p_days) or extract(dow from p_day) = any (p_weekdays)
              else extract(day from p_day) = any (p_days) and extract(dow from p_day) = any (p_weekdays) end
$$;

-- Converts a local time: to the first minute after the gap if the clock was put forward over it, to the first of both instants if it
-- exists twice.
create or replace function mbus._instant(p_local timestamp, p_zone text) returns timestamptz
language plpgsql stable set search_path from current as $$
declare
  -- PostgreSQL uses the offset from before a gap, and the second of two.
  v_last  constant timestamptz := p_local at time zone p_zone;
  v_shown constant timestamp := v_last at time zone p_zone;
  v_day_before constant timestamptz := v_last - interval '24 hours';
  v_first timestamptz;
begin
  if v_shown > p_local then
    return (select min(m) from generate_series(v_last - (v_shown - p_local), v_last, '1 minute') m where m at time zone p_zone > p_local);
  end if;
  -- Uses the offset of the day before.
  v_first := v_day_before + (p_local - (v_day_before at time zone p_zone));
  return case when v_first < v_last and v_first at time zone p_zone = p_local then v_first else v_last end;
end $$;

-- Returns when a schedule runs next after a moment.
--   timing    a cron expression of five fields, @yearly, @monthly, @weekly, @daily or @hourly, or an interval from one second up
--   timezone  in which the times of a cron expression are local times.  A run at a time that does not exist, because the clock is put
--             forward, is at the first instant after; a time that exists twice is used once.  If every hour is allowed, runs are
--             by elapsed time: none is added or lost when the clock is changed.
--   anchor    a run of an interval; other runs are whole intervals away from it
-- Errors: MB012.
create or replace function mbus.next_run(
  timing text, timezone text default 'UTC', after timestamptz default mbus.now(), anchor timestamptz default null) returns timestamptz
language plpgsql stable set search_path from current as $$
declare
  v_fields   constant text[] := regexp_split_to_array(btrim(case lower($1)
    when '@yearly' then '0 0 1 1 *' when '@annually' then '0 0 1 1 *' when '@monthly' then '0 0 1 * *' when '@weekly' then '0 0 * * 0'
    when '@daily' then '0 0 * * *' when '@midnight' then '0 0 * * *' when '@hourly' then '0 * * * *' else $1 end), '\s+');
  v_local    timestamp;
  v_minutes  integer[];
  v_hours    integer[];
  v_days     integer[];
  v_months   integer[];
  v_weekdays integer[];
  v_day      date;
  v_from     timestamptz;
  v_time     timestamp;
  v_next     timestamptz;
  v_seconds  double precision;
begin
  if cardinality(v_fields) is distinct from 5 then
    v_seconds := extract(epoch from $1::interval);
    if v_seconds is null or v_seconds < 1 or extract(month from $1::interval) <> 0 or extract(year from $1::interval) <> 0
       or $1::interval > mbus._longest() then
      raise invalid_datetime_format using message = 'an interval must be between a second and 1000 years, without months';
    end if;
    $4 := coalesce($4, $3);
    return $4 + make_interval(secs => v_seconds * (floor(extract(epoch from $3 - $4) / v_seconds) + 1));
  end if;
  if not isfinite($3) then raise invalid_datetime_format using message = 'the time must be finite'; end if;
  v_local := $3 at time zone $2;
  v_minutes := mbus._cron_field(v_fields[1], 0, 59);
  v_hours := mbus._cron_field(v_fields[2], 0, 23);
  v_days := mbus._cron_field(v_fields[3], 1, 31);
  v_months := mbus._cron_field(v_fields[4], 1, 12, '{jan,feb,mar,apr,may,jun,jul,aug,sep,oct,nov,dec}');
  v_weekdays := mbus._cron_field(v_fields[5], 0, 6, '{sun,mon,tue,wed,thu,fri,sat}');
  -- 29 February is at most eight years away.
  for v_count in 0 .. 2930 * 2 loop
    if cardinality(v_hours) = 24 then
      -- By elapsed time, half a day per step, which touches two days at most.
      v_from := date_trunc('minute', $3) + interval '1 minute' + v_count * interval '12 hours';
      continue when not mbus._cron_day((v_from at time zone $2)::date, v_days, v_months, v_weekdays)
                and not mbus._cron_day(((v_from + interval '12 hours') at time zone $2)::date, v_days, v_months, v_weekdays);
      select min(m) into v_next from generate_series(v_from, v_from + interval '12 hours', '1 minute') m
      where extract(minute from m at time zone $2) = any (v_minutes)
        and mbus._cron_day((m at time zone $2)::date, v_days, v_months, v_weekdays);
      if v_next is not null then return v_next; end if;
    else
      v_day := v_local::date + v_count;
      continue when not mbus._cron_day(v_day, v_days, v_months, v_weekdays);
      for v_time in
        select v_day + make_time(h, m, 0) from unnest(v_hours) h cross join unnest(v_minutes) m
        where v_day + make_time(h, m, 0) > v_local order by 1
      loop
        v_next := mbus._instant(v_time, $2);
        if v_next > $3 then return v_next; end if;
      end loop;
    end if;
  end loop;
  raise invalid_datetime_format using message = 'it never runs';
exception when data_exception then
  raise exception 'invalid timing "%" in time zone "%"', coalesce($1, 'null'), coalesce($2, 'null')
    using errcode = 'MB012', detail = sqlerrm, hint = 'Write 0 3 * * *, @daily or 15 minutes, and a time zone such as Europe/Moscow.';
end $$;
