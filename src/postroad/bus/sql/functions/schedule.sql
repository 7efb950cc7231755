-- Schedules: messages that are posted at planned times by mbus.maintain, whichever session calls it.  The row of a schedule is locked while
-- its run is posted and its next run is stored, so each planned run is posted once, however many sessions run maintenance.
-- A user who may post to the queue may use its schedules.

-- Posts a message at planned times, from now on, and returns the next of them.  A schedule of this name is replaced; it stays
-- paused, and keeps its next run if neither timing nor timezone are changed.
--   timing, timezone  see mbus.next_run
--   data      of the type of the queue's payload, or its text
--   headers   the message also has the headers schedule (the name) and planned_at
--   missed    what to do if several runs are due, or one is late, because nothing maintained the bus: post one message, planned for the first
--             of them (once) or for the first that is at most a minute late (skip), or post each of the last 24 hours (all)
-- Errors: MB001, MB011 payload, MB012 argument, MB013 role, and those of mbus.post.
create or replace function mbus.schedule(
  name text, timing text, qname text, data anycompatible, timezone text default 'UTC', missed text default 'once',
  headers hstore default null, properties hstore default null) returns timestamptz
language plpgsql security definer set search_path from current as $$
declare
  v_queue    constant mbus.queue := mbus._queue(qname);
  v_given    constant text := mbus._type_of(pg_typeof(data));
  v_now      constant timestamptz := date_trunc('second', mbus.now());
  v_schedule mbus.schedule;
begin
  perform mbus._check_post(qname);
  if v_given not in ('text', v_queue.payload) then perform mbus._refuse_payload(qname, v_queue.payload, v_given); end if;
  if coalesce(length($1), 0) not between 1 and 200 or $6 is null or $6 not in ('skip', 'once', 'all') then
    raise exception 'invalid schedule "%" with missed "%"', coalesce($1, 'null'), coalesce($6, 'null')
      using errcode = 'MB012', hint = 'A name has 1 to 200 characters, and missed is skip, once or all.';
  end if;
  insert into mbus.schedule as s (name, timing, timezone, queue_id, data, headers, properties, missed, next_at, created_at)
  values ($1, $2, $5, v_queue.id, $4::text, $7, $8, $6, mbus.next_run($2, $5, v_now), v_now)
  on conflict on constraint schedule_pkey do update
  set timing = excluded.timing, timezone = excluded.timezone, queue_id = excluded.queue_id, data = excluded.data,
      headers = excluded.headers, properties = excluded.properties, missed = excluded.missed,
      next_at = case when s.next_at is null or (s.timing, s.timezone) = (excluded.timing, excluded.timezone) then s.next_at
                     else excluded.next_at end
  -- Raises an error if the user may not post to the queue of the replaced schedule.
  where mbus._check_post((select q.name from mbus.queue q where q.id = s.queue_id)) is not null
  returning s.* into v_schedule;
  begin
    perform mbus._post_run(v_schedule, v_now);
    raise triggered_action_exception;    -- undoes the post: it was made only to raise what a run would
  exception when triggered_action_exception then null;
  end;
  return v_schedule.next_at;
end $$;

-- The schedule, if the session's user may post to its queue.  Errors: MB013, MB032.
create or replace function mbus._schedule(p_name text) returns mbus.schedule
language plpgsql stable set search_path from current as $$
declare
  v_schedule mbus.schedule;
begin
  select * into v_schedule from mbus.schedule s where s.name = p_name;
  if not found then
    raise exception 'there is no schedule "%"', coalesce(p_name, 'null')
      using errcode = 'MB032', hint = 'Create it with mbus.schedule, or see the view mbus.schedules.';
  end if;
  perform mbus._check_post(q.name) from mbus.queue q where q.id = v_schedule.queue_id;
  return v_schedule;
end $$;

create or replace function mbus._post_run(p_schedule mbus.schedule, p_planned timestamptz) returns text
language plpgsql set search_path from current as $$
declare
  v_queue mbus.queue;
  v_iid   text;
begin
  select * into v_queue from mbus.queue q where q.id = p_schedule.queue_id;
  execute format('select mbus.%I(mbus._read($1, null::%s), $2, $3)', 'post_' || v_queue.name, v_queue.payload) into v_iid
  using p_schedule.data, coalesce(p_schedule.headers, '') || hstore(array['schedule', 'planned_at'],
          array[p_schedule.name, to_char(p_planned at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')]), p_schedule.properties;
  return v_iid;
end $$;

-- Adds to the history of a schedule, which keeps 100 runs.
create or replace function mbus._note_run(p_name text, p_planned timestamptz, p_outcome text, p_iid text, p_error text) returns void
language sql set search_path from current as $$
  insert into mbus.schedule_run (schedule, planned_at, ran_at, outcome, iid, error)
  values (p_name, p_planned, mbus.now(), p_outcome, p_iid, p_error);
  delete from mbus.schedule_run r
  where r.schedule = p_name
    and r.id <= (select o.id from mbus.schedule_run o where o.schedule = p_name order by o.id desc offset 100 limit 1)
$$;

-- Posts the runs that are due, up to 100 of each schedule.  A run that cannot be posted is recorded and not repeated; a schedule
-- whose next run cannot be computed, because its time zone is gone, is paused.
-- Locks: rows of schedules, skipped when another session has them, then what posts lock.  Called before maintenance locks a queue.
create or replace function mbus._run_schedules() returns void
language plpgsql set search_path from current as $$
declare
  v_now      constant timestamptz := mbus.now();
  v_schedule mbus.schedule;
  v_planned  timestamptz;
  v_since    timestamptz;
  v_next     timestamptz;
  v_error    text;
begin
  for v_schedule in select * from mbus.schedule s where s.next_at <= v_now order by s.next_at limit 100 for no key update skip locked loop
    v_next := v_schedule.next_at;
    for v_count in 1 .. 100 loop
      exit when v_next is null or v_next > v_now;
      v_planned := v_next;
      v_next := null;
      begin
        v_since := v_now - case v_schedule.missed when 'skip' then interval '1 minute' when 'all' then interval '24 hours' end;
        if v_planned < v_since then
          perform mbus._note_run(v_schedule.name, v_planned, 'skipped', null, null);
          -- After the time before it, because a run at this time is not too late.
          v_next := mbus.next_run(v_schedule.timing, v_schedule.timezone, v_since - interval '1 microsecond', v_planned);
        else
          v_next := mbus.next_run(v_schedule.timing, v_schedule.timezone,
            case v_schedule.missed when 'all' then v_planned else v_now end, v_planned);
          perform mbus._note_run(v_schedule.name, v_planned, 'posted', mbus._post_run(v_schedule, v_planned), null);
        end if;
      exception
        when lock_not_available or transaction_rollback or insufficient_resources or operator_intervention then raise;
        when others then
          v_error := sqlerrm;
          perform mbus._note_run(v_schedule.name, v_planned, 'failed', null, v_error);
      end;
    end loop;
    update mbus.schedule s
    set next_at = v_next, paused_at = case when v_next is null then v_now end,
        paused_by = case when v_next is null then 'maintenance' end, pause_reason = case when v_next is null then v_error end
    where s.name = v_schedule.name;
  end loop;
end $$;

-- Removes a schedule with its history; messages that were posted stay.  Returns false if there is none.  Errors: MB013.
create or replace function mbus.unschedule(name text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  if not exists (select from mbus.schedule s where s.name = $1) then return false; end if;
  perform mbus._schedule($1);
  delete from mbus.schedule s where s.name = $1;
  return found;
end $$;

-- Stops posting the runs of a schedule until mbus.resume_schedule.  Returns false if it was already paused.  Errors: MB013, MB032.
create or replace function mbus.pause_schedule(name text, reason text default null, paused_by text default session_user) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._schedule($1);
  update mbus.schedule s
  set next_at = null, paused_at = mbus.now(), paused_by = coalesce($3, session_user), pause_reason = nullif($2, '')
  where s.name = $1 and s.paused_at is null;
  return found;
end $$;

-- Ends the pause of a schedule; the runs that were due in that time are skipped.  Returns false if it was not paused.  Errors: MB013,
-- MB032.
create or replace function mbus.resume_schedule(name text) returns boolean
language plpgsql security definer set search_path from current as $$
begin
  perform mbus._schedule($1);
  update mbus.schedule s
  set next_at = mbus.next_run(s.timing, s.timezone, date_trunc('second', mbus.now())), paused_at = null, paused_by = null, pause_reason = null
  where s.name = $1 and s.paused_at is not null;
  return found;
end $$;

-- Posts the message of a schedule now, in the caller's transaction, paused or not, and returns its iid.  Planned runs are not affected.
-- Errors: MB013, MB032, and those of mbus.post.
create or replace function mbus.run_now(name text) returns text
language plpgsql security definer set search_path from current as $$
declare
  v_schedule constant mbus.schedule := mbus._schedule($1);
  v_iid      constant text := mbus._post_run(v_schedule, mbus.now());
begin
  perform mbus._note_run($1, mbus.now(), 'posted', v_iid, null);
  return v_iid;
end $$;
