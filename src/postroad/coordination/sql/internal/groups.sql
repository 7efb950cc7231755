-- Groups: staged events that are applied together or not at all.
--
-- An event that depends on a cancelled one cannot be applied before the event that restores the cancelled one: between the two, the
-- history without the cancelled event is not a state that the Writer ever had.  So an event that the tables refuse is tried
-- together with the restoring events of earlier cancelled events, with those of events cancelled in the meantime, and so on.  When no
-- more restoring events exist, the history up to the end of the group is complete, and an event that is still refused is itself the cause.
--
-- For each of its events a group also contains all earlier ones in the order of the same entities.  So the order is kept, and the group
-- is as large as necessary: an event of two entities includes the events that precede it in both.

-- Whether an event could be applied if it were the first: it is completely staged, and no decision is missing.
create or replace function coordination._is_ready(p_event coordination.staging) returns boolean
language sql immutable set search_path from current as $$
  select (p_event).staged >= (p_event).count
    and ((p_event).mode = 'replicate' and (p_event).outcome is null or (p_event).outcome is not distinct from 'commit')
$$;

-- The events that must be applied together with the targets, in order.  `reach`: entities, including those joined by foreign keys, whose
-- later events follow these.  waits_for: one of them that is not ready; then there is no group yet.
create or replace function coordination._group(
  p_targets bigint[], p_wait text, out events bigint[], out reach text[], out upto bigint, out waits_for bigint)
language plpgsql stable set search_path from current as $$
declare
  v_event coordination.staging;
  -- Entities whose related entities are already in reach; reach itself contains more.
  v_seen  text[] := '{}';
begin
  events := '{}';
  reach := '{}';
  select max(s.position) into upto from coordination.staging s where s.event_id = any (p_targets);
  for v_event in
    select s.* from coordination.staging s
    where s.position <= upto and s.outcome is distinct from 'cancel' order by s.position desc
  loop
    if p_wait = 'all' or v_event.entities && reach or v_event.event_id = any (p_targets) then
      if not coordination._is_ready(v_event) then
        waits_for := v_event.event_id;
        return;
      end if;
      events := v_event.event_id || events;
      if not v_event.entities <@ v_seen then
        v_seen := v_seen || v_event.entities;
        reach := reach || v_event.entities || array(
          select r.name from coordination.entity e cross join lateral unnest(e.related) r (name) where e.name = any (v_event.entities));
      end if;
    end if;
  end loop;
end $$;

-- Applies an event that the tables refused alone together with its restoring events, if they have arrived.  Returns the group with the
-- event itself; null, with nothing applied, if no group can be applied.  waits_for: an event that must be decided or completed first.
create or replace function coordination._apply_with_following(
  p_event coordination.staging, p_progress coordination.progress, out applied bigint[], out waits_for bigint)
language plpgsql set search_path from current as $$
declare
  v_targets bigint[] := array[p_event.event_id];
  v_more    bigint[];
  v_group   record;
  v_width   integer := 1;
begin
  v_group := coordination._group(v_targets, p_progress.wait);
  loop
    -- Starts with one event, to reach the earliest possible state; then doubles the number, so that few attempts are needed.
    select array_agg(f.event_id) into v_more from (
      select c.event_id from coordination.staging c
      left join coordination.staging w on w.event_id = c.cancels
      left join coordination."AppEvent" e on e."Id" = c.cancels
      where c.cancels is not null and c.outcome is distinct from 'cancel' and c.event_id <> all (v_group.events)
        and coalesce(w.position, e."Position", 0) < v_group.upto
        and (c.entities && v_group.reach or p_progress.wait = 'all')
      order by c.position limit v_width) f;
    exit when v_more is null;
    v_targets := v_targets || v_more;
    v_width := v_width * 2;
    v_group := coordination._group(v_targets, p_progress.wait);
    if v_group.waits_for is not null then
      waits_for := v_group.waits_for;
      return;
    end if;
    if coordination._apply_staged(v_group.events, p_progress.columns) is null then
      applied := v_group.events;
      return;
    end if;
  end loop;
  -- The event itself is the cause, but later events may have repaired it.
  v_more := array(
    select s.event_id from coordination.staging s
    where s.position > p_event.position and s.entities && p_event.entities and coordination._is_ready(s)
      and s.position < coalesce((
        select min(u.position) from coordination.staging u
        where u.position > p_event.position and u.entities && p_event.entities
          and u.outcome is distinct from 'cancel' and not coordination._is_ready(u)), s.position + 1)
    order by s.position limit 200);
  if v_more <@ v_targets then return; end if;
  v_group := coordination._group(v_targets || v_more, p_progress.wait);
  if v_group.waits_for is null and coordination._apply_staged(v_group.events, p_progress.columns) is null then
    applied := v_group.events;
  end if;
end $$;
